rule prepare_dataset:
    """Read or make the samples of one dataset."""
    output:
        dataset=f"{ARTIFACTS}/{DATASET}/dataset.h5",
    log:
        f"{LOGS}/{DATASET}/prepare_dataset.log",
    benchmark:
        f"{BENCHMARKS}/{DATASET}/prepare_dataset.tsv"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        specs=resolved("dataset"),
        source=source("gleak.data.prepare", "dataset"),
        data_dir=lambda w: str(SETTINGS.data_dir) if cell(w).dataset.reads_data_dir else "",
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/prepare_dataset.py"
