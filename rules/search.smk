"""Searches for an attack's hyperparameters, on victims from the train split."""


rule search:
    """Search values of an attack's fields, on victims from the train split only."""
    input:
        unpack(reading(stage_files.reads_of_search, searched)),  # those of rule attack, and private.h5
    output:
        trials=f"{STUDY}/searches/{{search}}/trials.csv",
        chosen=f"{STUDY}/searches/{{search}}/chosen.yaml",
        provenance=f"{STUDY}/searches/{{search}}/provenance.json",
    log:
        log_of("search"),
    benchmark:
        benchmark_of("search")
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("search", searched),
    params:
        declared=lambda w: json.dumps(search_of(w).declared),
        specs=lambda w: json.dumps(search_of(w).resolved()),
        source=lambda w: source_digest(STAGES["search"].code, *search_of(w).modules),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/search.py"
