rule craft_parameters:
    """Craft what a dishonest server broadcasts; an honest one broadcasts model.h5 itself."""
    input:
        model=f"{ARTIFACTS}/{MODEL}/model.h5",
    output:
        parameters=f"{ARTIFACTS}/{CRAFTED}/parameters.h5",
        secret=f"{ARTIFACTS}/{CRAFTED}/secret.h5",
    log:
        f"{LOGS}/{CRAFTED}/craft_parameters.log",
    benchmark:
        f"{BENCHMARKS}/{CRAFTED}/craft_parameters.tsv"
    threads: 1
    resources:
        mem_mb=memory(4000, copies=3, of=model_bytes),
        runtime=30,
    params:
        specs=resolved("model", "crafting"),
        source=source("gleak.crafting.craft", "model", "crafting"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/craft_parameters.py"
