"""Scoring: where a reconstruction first meets the truth, after every attack is over."""

from gleak.metrics.base import metrics_of


def scoring(stage, level):
    """For `params`: the metrics of the cells that end with a level, and the code that measures."""
    metrics = metrics_of(level)
    modules = sorted({name for metric in metrics for name in metric.modules})
    return {
        "metrics": json.dumps([metric.resolved() for metric in metrics]),
        "source": source_digest(stage, *modules),
    }


SCORING = scoring("gleak.metrics.score", "attack")


rule score:
    """Compare a reconstruction with the truth."""
    input:
        private=f"{ARTIFACTS}/{SENT}/private.h5",
        reconstruction=f"{ARTIFACTS}/{ATTACKED}/reconstruction.h5",
        provenance=f"{ARTIFACTS}/{ATTACKED}/provenance.json",
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
        **scoring("gleak.metrics.score_model", "training"),
    script:
        "../workflow_scripts/score_model.py"
