"""Scoring, the first stage that reads both reconstruction and truth.

Models and broadcast parameters are scored separately, without attack or truth.
"""


rule score:
    """Compare a reconstruction with the truth."""
    input:
        unpack(inputs("score")),
    output:
        **outputs("score"),
    log:
        log_of("score"),
    benchmark:
        benchmark_of("score")
    conda:
        "../envs/gleak.yaml"
    threads: 1
    resources:
        **resources("score"),
    params:
        **scoring("attack"),
        grants=lambda w: " ".join(sorted(cell(w).attack.grants)),
    script:
        "../workflow_scripts/score.py"


rule score_truth:
    """Score the truth as if it were a reconstruction: an upper bound."""
    input:
        unpack(inputs("score_truth")),
    output:
        **outputs("score_truth"),
    log:
        log_of("score_truth"),
    benchmark:
        benchmark_of("score_truth")
    conda:
        "../envs/gleak.yaml"
    threads: 1
    resources:
        **resources("score_truth"),
    params:
        **scoring("attack"),
        grants="",
    script:
        "../workflow_scripts/score.py"


rule score_model:
    """Measure a trained model, without attack or truth."""
    input:
        unpack(inputs("score_model")),
    output:
        **outputs("score_model"),
    log:
        log_of("score_model"),
    benchmark:
        benchmark_of("score_model")
    conda:
        "../envs/gleak.yaml"
    threads: 1
    resources:
        **resources("score_model"),
    params:
        **scoring("training"),
    script:
        "../workflow_scripts/score_model.py"


rule score_parameters:
    """Audit the broadcast parameters with a client's data, without the server's secret."""
    input:
        unpack(inputs("score_parameters")),
    output:
        **outputs("score_parameters"),
    log:
        log_of("score_parameters"),
    benchmark:
        benchmark_of("score_parameters")
    conda:
        "../envs/gleak.yaml"
    threads: 1
    resources:
        **resources("score_parameters"),
    params:
        **scoring("crafting", "model"),
        specs=resolved("model"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/score_parameters.py"
