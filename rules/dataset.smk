def data_dir(wildcards):
    """For `params`: the folder that a dataset is read from, if any; it is looked for beforehand."""
    dataset = cell(wildcards).dataset
    made = Path(f"{PATHS.folder(cell(wildcards))}/dataset.h5").exists()
    if workflow.is_main_process and not made:
        checked(lambda: dataset.check_data(SETTINGS.data_dir))
    return str(SETTINGS.data_dir) if dataset.reads_data_dir else ""


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
        data_dir=data_dir,
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/prepare_dataset.py"
