rule craft_parameters:
    """Craft the parameters that a dishonest server broadcasts; an honest one broadcasts model.h5."""
    input:
        model=f"{TRAINED}/model.h5",
    output:
        parameters=f"{CRAFTED}/parameters.h5",
        secret=f"{CRAFTED}/secret.h5",
    log:
        log_of("craft_parameters"),
    benchmark:
        benchmark_of("craft_parameters")
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("craft_parameters"),
    params:
        **keyed_on("craft_parameters"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/craft_parameters.py"
