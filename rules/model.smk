rule train_model:
    """Give a model its parameters: initialised only, or trained."""
    input:
        unpack(inputs("train_model")),
    output:
        **outputs("train_model"),
    log:
        log_of("train_model"),
    benchmark:
        benchmark_of("train_model")
    wildcard_constraints:
        training=NOT_CAPTURED,
    threads: 1
    resources:
        **resources("train_model"),
    params:
        **keyed_on("train_model"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/train_model.py"
