"""Captured models, updates and samples in place of simulated ones; see `gleak import`.

The truth is read by a separate job, which does not write the update.
"""


rule take_captured_model:
    """Import captured broadcast parameters."""
    input:
        dataset=f"{DATASET}/dataset.h5",
        captured=captured("training", CAPTURED_MODEL),
    output:
        model=f"{TRAINED}/model.h5",
    log:
        log_of("take_captured_model"),
    benchmark:
        benchmark_of("take_captured_model")
    wildcard_constraints:
        training=ONLY_CAPTURED,
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("take_captured_model"),
    params:
        **keyed_on("take_captured_model"),
    script:
        "../workflow_scripts/take_captured_model.py"


rule take_captured_update:
    """Import captured updates."""
    input:
        captured=captured("client", CAPTURED_UPDATE),
    output:
        sent=f"{SENT}/update.h5",
    log:
        log_of("take_captured_update"),
    benchmark:
        benchmark_of("take_captured_update")
    wildcard_constraints:
        client=ONLY_CAPTURED,
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("take_captured_update"),
    params:
        **keyed_on("take_captured_update"),
    script:
        "../workflow_scripts/take_captured_update.py"


rule take_captured_truth:
    """Import the samples of captured clients: the truth, and the parts that may be granted."""
    input:
        dataset=f"{DATASET}/dataset.h5",
        parameters=broadcast,
        captured=captured("client", CAPTURED_TRUTH),
    output:
        private=f"{SENT}/private.h5",
        granted=[f"{SENT}/granted/{grant}.h5" for grant in GRANTS],
    log:
        log_of("take_captured_truth"),
    benchmark:
        benchmark_of("take_captured_truth")
    wildcard_constraints:
        client=ONLY_CAPTURED,
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("take_captured_truth"),
    params:
        **keyed_on("take_captured_truth"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/take_captured_truth.py"
