"""Searches for an attack's hyperparameters, on victims from the train split."""


def search_of(wildcards):
    """Return the search of a job; check a user-defined network when jobs are planned."""
    found = checked(lambda: study_of(wildcards).search(wildcards.search, wildcards.scale))
    if workflow.is_main_process:
        checked(lambda: check_own_model(found.cell, SETTINGS.data_dir))
    return found


def searched(wildcards):
    """Return the search of a job as a part of its study."""
    search_of(wildcards)
    return StudyPart(study_of(wildcards), wildcards.scale, "search", wildcards.search)


def every_search():
    """Yield the result file of every search of the configured studies."""
    for name, study in STUDIES.items():
        for search in study.searches:
            part = StudyPart(study, SETTINGS.scale, "search", search)
            yield path_of(Made("search", "chosen", part), RESULTS)


rule search:
    """Search values of an attack's fields, on victims from the train split only."""
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
