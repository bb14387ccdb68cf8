rule craft_parameters:
    """Craft the parameters that a dishonest server broadcasts; an honest one broadcasts model.h5."""
    input:
        unpack(inputs("craft_parameters")),
    output:
        **outputs("craft_parameters"),
    log:
        log_of("craft_parameters"),
    benchmark:
        benchmark_of("craft_parameters")
    conda:
        "../envs/gleak.yaml"
    threads: 1
    resources:
        **resources("craft_parameters"),
    params:
        **keyed_on("craft_parameters"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/craft_parameters.py"
