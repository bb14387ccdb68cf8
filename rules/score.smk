"""Scoring, the first stage that reads both reconstruction and truth.

The truth is scored as if it were a reconstruction: an upper bound. Models and broadcast parameters
are scored without attack or truth.
"""


rule score:
    """Compare a reconstruction with the truth."""
    input:
        dataset=f"{DATASET}/dataset.h5",
        private=f"{SENT}/private.h5",
        reconstruction=f"{ATTACKED}/reconstruction.h5",
        provenance=f"{ATTACKED}/provenance.json",
        knowledge=knowledge,
        evaluators=evaluators,
    output:
        scores=f"{ATTACKED}/scores.csv",
    log:
        log_of("score"),
    benchmark:
        benchmark_of("score")
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("score"),
    params:
        **scoring("attack", "crafting", "client", "defense"),
        grants=lambda w: " ".join(sorted(cell(w).attack.grants)),
    script:
        "../workflow_scripts/score.py"


use rule score as score_truth with:
    input:
        dataset=f"{DATASET}/dataset.h5",
        private=f"{SENT}/private.h5",
    output:
        scores=f"{SENT}/{TRUTH}/scores.csv",
    log:
        log_of("score_truth"),
    benchmark:
        benchmark_of("score_truth")
    resources:
        **resources("score_truth"),
    params:
        **scoring("attack", "crafting", "client", "defense"),
        grants="",


rule score_model:
    """Measure a trained model, without attack or truth."""
    input:
        model=f"{TRAINED}/model.h5",
    output:
        scores=f"{TRAINED}/scores.csv",
    log:
        log_of("score_model"),
    benchmark:
        benchmark_of("score_model")
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("score_model"),
    params:
        **scoring("training"),
    script:
        "../workflow_scripts/score_model.py"


rule score_parameters:
    """Audit the broadcast parameters with a client's data, without the server's secret."""
    input:
        dataset=f"{DATASET}/dataset.h5",
        parameters=broadcast,
    output:
        scores=f"{CRAFTED}/scores.csv",
    log:
        log_of("score_parameters"),
    benchmark:
        benchmark_of("score_parameters")
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("score_parameters"),
    params:
        **scoring("crafting", "model"),
        specs=resolved("model"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/score_parameters.py"
