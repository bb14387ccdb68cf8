"""What was captured elsewhere, in place of what is trained and simulated; see `gleak import`.

The truth is an input of a job of its own, which no update comes from.
"""

from gleak.artifacts.granted import GRANTS
from gleak.captures.folder import MODEL as CAPTURED_MODEL
from gleak.captures.folder import PRIVATE as CAPTURED_TRUTH
from gleak.captures.folder import UPDATE as CAPTURED_UPDATE
from gleak.captures.folder import Captures

CAPTURES = Captures(SETTINGS.data_dir)


def captured(level, file):
    """For `input`: a file of the capture that a level's spec names."""

    def find(wildcards):
        return checked(lambda: CAPTURES.file(cell(wildcards).specs[level].capture, file))

    return find


rule take_captured_model:
    """Take parameters that were broadcast elsewhere."""
    input:
        captured=captured("training", CAPTURED_MODEL),
        dataset=f"{ARTIFACTS}/{DATASET}/dataset.h5",
    output:
        model=f"{ARTIFACTS}/{MODEL}/model.h5",
    log:
        f"{LOGS}/{MODEL}/take_captured_model.log",
    benchmark:
        f"{BENCHMARKS}/{MODEL}/take_captured_model.tsv"
    wildcard_constraints:
        training=CAPTURED,
    threads: 1
    resources:
        mem_mb=memory(4000, copies=2, of=model_bytes),
        runtime=30,
    params:
        specs=resolved("model"),
        source=source("gleak.captures.take_model", "model"),
    script:
        "../workflow_scripts/take_captured_model.py"


rule take_captured_update:
    """Take what clients sent elsewhere."""
    input:
        captured=captured("client", CAPTURED_UPDATE),
    output:
        sent=f"{ARTIFACTS}/{SENT}/update.h5",
    log:
        f"{LOGS}/{SENT}/take_captured_update.log",
    benchmark:
        f"{BENCHMARKS}/{SENT}/take_captured_update.tsv"
    wildcard_constraints:
        client=CAPTURED,
    threads: 1
    resources:
        mem_mb=memory(2000, copies=3),
        runtime=30,
    params:
        specs=resolved("client"),
        source=source("gleak.captures.take_update", "client"),
    script:
        "../workflow_scripts/take_captured_update.py"


rule take_captured_truth:
    """Take the samples behind captured updates: what is kept secret, and what may be granted."""
    input:
        captured=captured("client", CAPTURED_TRUTH),
        dataset=f"{ARTIFACTS}/{DATASET}/dataset.h5",
        parameters=parameters,
    output:
        private=f"{ARTIFACTS}/{SENT}/private.h5",
        granted=[f"{ARTIFACTS}/{SENT}/granted/{grant}.h5" for grant in GRANTS],
    log:
        f"{LOGS}/{SENT}/take_captured_truth.log",
    benchmark:
        f"{BENCHMARKS}/{SENT}/take_captured_truth.tsv"
    wildcard_constraints:
        client=CAPTURED,
    threads: 1
    resources:
        mem_mb=memory(4000, copies=3),
        runtime=60,
        gpu=int(SETTINGS.device == "cuda"),
    params:
        specs=resolved("model", "client"),
        source=source("gleak.captures.take_truth", "model", "client"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/take_captured_truth.py"
