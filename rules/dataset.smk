def data_dir(wildcards):
    """Return the data folder if a dataset is read from it; check that its data exist."""
    dataset = cell(wildcards).dataset
    made = path_of(dataset_of(cell(wildcards)), RESULTS).exists()
    if workflow.is_main_process and not made:
        checked(lambda: dataset.check_data(SETTINGS.data_dir))
    return str(SETTINGS.data_dir) if dataset.reads_data_dir else ""


rule prepare_dataset:
    """Read or generate the samples of one dataset."""
    output:
        **outputs("prepare_dataset"),
    log:
        log_of("prepare_dataset"),
    benchmark:
        benchmark_of("prepare_dataset")
    threads: 1
    resources:
        **resources("prepare_dataset"),
    params:
        **keyed_on("prepare_dataset"),
        data_dir=data_dir,
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/prepare_dataset.py"
