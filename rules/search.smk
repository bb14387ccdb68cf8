"""Searches for an attack's hyperparameters, on victims of which no result is reported."""


def search_of(wildcards):
    """The search a job carries out; a user's own network is tried where jobs are planned."""
    found = checked(lambda: study_of(wildcards).search(wildcards.search, wildcards.scale))
    if workflow.is_main_process:
        checked(lambda: check_own_model(found.cell, SETTINGS.data_dir))
    return found


def tried_on(wildcards):
    """The folder with the updates and the truth on which values are tried."""
    return PATHS.folder(search_of(wildcards).cell.upto("defense"))


def every_search():
    """What every search of the configured studies chooses."""
    for name, study in STUDIES.items():
        folder = STUDY.format(study=name, scale=SETTINGS.scale)
        yield from (f"{folder}/searches/{search}/chosen.yaml" for search in study.searches)


rule search:
    """Try values of an attack's fields; only victims from the train split are ever read."""
    input:
        sent=lambda w: f"{tried_on(w)}/update.h5",
        parameters=lambda w: broadcast(search_of(w).cell),
        granted=lambda w: grants_of(search_of(w).cell),
        secret=lambda w: secret_of(search_of(w).cell),
        knowledge=lambda w: brought_by(search_of(w).cell),
        private=lambda w: f"{tried_on(w)}/private.h5",
    output:
        trials=f"{STUDY}/searches/{{search}}/trials.csv",
        chosen=f"{STUDY}/searches/{{search}}/chosen.yaml",
        provenance=f"{STUDY}/searches/{{search}}/provenance.json",
    log:
        f"{STUDY_LOGS}/{{search}}.search.log",
    benchmark:
        f"{STUDY_BENCHMARKS}/{{search}}.search.tsv"
    threads: 1
    resources:
        mem_mb=lambda w: 6000 + 3 * update_bytes(search_of(w).cell) // 10**6,
        runtime=720,
        gpu=int(SETTINGS.device == "cuda"),
    params:
        declared=lambda w: json.dumps(search_of(w).declared),
        specs=lambda w: json.dumps(search_of(w).resolved()),
        source=lambda w: source_digest("gleak.experiments.search.run", *search_of(w).modules),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/search.py"
