"""Scoring: where a reconstruction first meets the truth, after every attack is over."""

from gleak import registry

METRICS = [registry.parse("metric", name) for name in registry.load("metric")]
SCORING = {
    "metrics": json.dumps([metric.resolved() for metric in METRICS]),
    "source": source_digest(
        "gleak.metrics.score", *sorted({name for metric in METRICS for name in metric.modules})
    ),
}


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
