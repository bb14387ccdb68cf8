"""Run `gleak.metrics.score_audit.score_audit` for one job."""

from pathlib import Path

from gleak.core.registry import parse
from gleak.metrics.score_audit import score_audit
from gleak.runtime.logs import log_to

with log_to(snakemake.log[0], snakemake.config["results_dir"]):
    score_audit(
        Path(snakemake.input.audit),
        Path(snakemake.output.scores),
        dict(snakemake.wildcards.items()),
        [parse("metric", text) for text in snakemake.params.metrics],
    )
