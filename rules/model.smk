rule train_model:
    """Give a model its parameters: initialised only, or trained."""
    input:
        dataset=f"{ARTIFACTS}/{DATASET}/dataset.h5",
    output:
        model=f"{ARTIFACTS}/{MODEL}/model.h5",
    log:
        f"{LOGS}/{MODEL}/train_model.log",
    benchmark:
        f"{BENCHMARKS}/{MODEL}/train_model.tsv"
    wildcard_constraints:
        training=NOT_CAPTURED,
    threads: 1
    resources:
        mem_mb=4000,
        runtime=240,
        gpu=int(SETTINGS.device == "cuda"),
    params:
        specs=resolved("model", "training"),
        source=source("gleak.training.train_model", "model", "training"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/train_model.py"
