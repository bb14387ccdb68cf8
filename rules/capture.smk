"""What was captured elsewhere, in place of what is trained and simulated; see `gleak import`.

The truth is an input of a job of its own, which no update comes from.
"""

from gleak.captures.locations import MODEL as CAPTURED_MODEL
from gleak.captures.locations import PRIVATE as CAPTURED_TRUTH
from gleak.captures.locations import UPDATE as CAPTURED_UPDATE
from gleak.captures.locations import Captures

CAPTURES = Captures(SETTINGS.data_dir)


def captured(level, file):
    """For `input`: a file of the capture that a level's spec names."""

    def find(wildcards):
        return checked(lambda: CAPTURES.file(cell(wildcards).specs[level].capture, file))

    return find


rule take_captured_model:
    """Take parameters that were broadcast elsewhere."""
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
    """Take what clients sent elsewhere."""
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
    """Take the samples of captured clients: what is kept secret, and what may be granted."""
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
