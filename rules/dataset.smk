rule prepare_dataset:
    """Read or generate the samples of one dataset."""
    output:
        dataset=f"{DATASET}/dataset.h5",
    log:
        log_of("prepare_dataset"),
    benchmark:
        benchmark_of("prepare_dataset")
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("prepare_dataset"),
    params:
        **keyed_on("prepare_dataset"),
        data_dir=data_dir,
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/prepare_dataset.py"
