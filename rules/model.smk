rule train_model:
    """Initialise a model and train it, if its training has any epochs."""
    input:
        dataset=f"{DATASET}/dataset.h5",
    output:
        model=f"{TRAINED}/model.h5",
    log:
        log_of("train_model"),
    benchmark:
        benchmark_of("train_model")
    wildcard_constraints:
        training=NOT_CAPTURED,
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("train_model"),
    params:
        **keyed_on("train_model"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/train_model.py"
