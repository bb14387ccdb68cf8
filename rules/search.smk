"""Searches for an attack's hyperparameters, on victims of which no result is reported."""


def search_of(wildcards):
    """The search a job carries out; a user's own network is tried where jobs are planned."""
    found = checked(lambda: study_of(wildcards).search(wildcards.search, wildcards.scale))
    if workflow.is_main_process:
        checked(lambda: check_own_model(found.cell, SETTINGS.data_dir))
    return found


def searched(wildcards):
    """The search a job carries out, in its study."""
    search_of(wildcards)
    return StudyPart(study_of(wildcards), wildcards.scale, "search", wildcards.search)


def every_search():
    """What every search of the configured studies chooses."""
    for name, study in STUDIES.items():
        for search in study.searches:
            part = StudyPart(study, SETTINGS.scale, "search", search)
            yield path_of(Made("search", "chosen", part), RESULTS)


rule search:
    """Try values of an attack's fields; only victims from the train split are ever read."""
    input:
        unpack(inputs("search", searched)),
    output:
        **outputs("search"),
    log:
        log_of("search"),
    benchmark:
        benchmark_of("search")
    threads: 1
    resources:
        **resources("search", lambda w: search_of(w).cell),
    params:
        declared=lambda w: json.dumps(search_of(w).declared),
        specs=lambda w: json.dumps(search_of(w).resolved()),
        source=lambda w: source_digest(STAGES["search"].code, *search_of(w).modules),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/search.py"
