"""Captured models, updates and samples in place of simulated ones; see `gleak import`.

The truth is read by a separate job, which does not write the update.
"""

from gleak.captures.locations import MODEL as CAPTURED_MODEL
from gleak.captures.locations import PRIVATE as CAPTURED_TRUTH
from gleak.captures.locations import UPDATE as CAPTURED_UPDATE
from gleak.captures.locations import Captures

CAPTURES = Captures(SETTINGS.data_dir)


def captured(level, file):
    """Return an input function for a file of the capture that a level's spec names."""

    def find(wildcards):
        return checked(lambda: CAPTURES.file(cell(wildcards).specs[level].capture, file))

    return find


rule take_captured_model:
    """Import captured broadcast parameters."""
    input:
        unpack(inputs("take_captured_model")),
        captured=captured("training", CAPTURED_MODEL),
    output:
        **outputs("take_captured_model"),
    log:
        log_of("take_captured_model"),
    benchmark:
        benchmark_of("take_captured_model")
    wildcard_constraints:
        training=ONLY_CAPTURED,
    threads: 1
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
        **outputs("take_captured_update"),
    log:
        log_of("take_captured_update"),
    benchmark:
        benchmark_of("take_captured_update")
    wildcard_constraints:
        client=ONLY_CAPTURED,
    threads: 1
    resources:
        **resources("take_captured_update"),
    params:
        **keyed_on("take_captured_update"),
    script:
        "../workflow_scripts/take_captured_update.py"


rule take_captured_truth:
    """Import the samples of captured clients: the truth, and the parts that may be granted."""
    input:
        unpack(inputs("take_captured_truth")),
        captured=captured("client", CAPTURED_TRUTH),
    output:
        **outputs("take_captured_truth"),
    log:
        log_of("take_captured_truth"),
    benchmark:
        benchmark_of("take_captured_truth")
    wildcard_constraints:
        client=ONLY_CAPTURED,
    threads: 1
    resources:
        **resources("take_captured_truth"),
    params:
        **keyed_on("take_captured_truth"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/take_captured_truth.py"
