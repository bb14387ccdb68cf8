"""Searches for an attack's hyperparameters, on victims from the train split."""


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
    conda:
        "../envs/gleak.yaml"
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
