rule prepare_dataset:
    """Read or generate the samples of one dataset."""
    output:
        **outputs("prepare_dataset"),
    log:
        log_of("prepare_dataset"),
    benchmark:
        benchmark_of("prepare_dataset")
    conda:
        "../envs/gleak.yaml"
    threads: 1
    resources:
        **resources("prepare_dataset"),
    params:
        **keyed_on("prepare_dataset"),
        data_dir=data_dir,
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/prepare_dataset.py"
