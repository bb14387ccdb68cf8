"""Scoring: where a reconstruction first meets the truth, after every attack is over.

Models and broadcast parameters are scored by themselves, without any attack or truth.
"""

from gleak.experiments.cell import SCORED_BY
from gleak.metrics.base import metrics_of


def scoring(end, *levels):
    """For `params`: the metrics of cells with this end, and the code that measures.

    That of these levels' specs is part of it.
    """
    metrics = metrics_of(end)
    return {
        "metrics": json.dumps([metric.resolved() for metric in metrics]),
        "source": source(f"gleak.metrics.{SCORED_BY[end]}", *levels, with_specs=metrics),
    }


SCORING = scoring("attack")


def judges(wildcards):
    """What an attack's spec says it is scored by, trained on public data; no attack job reads it."""
    return [PATHS.knowledge(pretraining) for pretraining in cell(wildcards).judges]


rule score:
    """Compare a reconstruction with the truth."""
    input:
        private=f"{ARTIFACTS}/{SENT}/private.h5",
        reconstruction=f"{ARTIFACTS}/{ATTACKED}/reconstruction.h5",
        provenance=f"{ARTIFACTS}/{ATTACKED}/provenance.json",
        knowledge=brought,
        judges=judges,
    output:
        scores=f"{ARTIFACTS}/{ATTACKED}/scores.csv",
    log:
        f"{LOGS}/{ATTACKED}/score.log",
    benchmark:
        f"{BENCHMARKS}/{ATTACKED}/score.tsv"
    threads: 1
    resources:
        mem_mb=3000,
        runtime=30,
    params:
        **SCORING,
        grants=lambda w: " ".join(sorted(cell(w).attack.grants)),
    script:
        "../workflow_scripts/score.py"


rule score_truth:
    """The control above: the truth scored as if it were a reconstruction."""
    input:
        private=f"{ARTIFACTS}/{SENT}/private.h5",
    output:
        scores=f"{ARTIFACTS}/{SENT}/{TRUTH}/scores.csv",
    log:
        f"{LOGS}/{SENT}/{TRUTH}/score.log",
    benchmark:
        f"{BENCHMARKS}/{SENT}/{TRUTH}/score.tsv"
    threads: 1
    resources:
        mem_mb=3000,
        runtime=30,
    params:
        **SCORING,
        grants="",
    script:
        "../workflow_scripts/score.py"


rule score_model:
    """Measure a trained model as it is: no attack, no truth."""
    input:
        model=f"{ARTIFACTS}/{MODEL}/model.h5",
    output:
        scores=f"{ARTIFACTS}/{MODEL}/scores.csv",
    log:
        f"{LOGS}/{MODEL}/score_model.log",
    benchmark:
        f"{BENCHMARKS}/{MODEL}/score_model.tsv"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        **scoring("training"),
    script:
        "../workflow_scripts/score_model.py"


rule score_parameters:
    """Audit what is broadcast as a client can: with its own data, without the server's secret."""
    input:
        parameters=parameters,
        dataset=f"{ARTIFACTS}/{DATASET}/dataset.h5",
    output:
        scores=f"{ARTIFACTS}/{CRAFTED}/scores.csv",
    log:
        f"{LOGS}/{CRAFTED}/score_parameters.log",
    benchmark:
        f"{BENCHMARKS}/{CRAFTED}/score_parameters.tsv"
    threads: 1
    resources:
        mem_mb=memory(4000, copies=4, of=model_bytes),
        runtime=60,
    params:
        **scoring("crafting", "model"),
        specs=resolved("model"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/score_parameters.py"
