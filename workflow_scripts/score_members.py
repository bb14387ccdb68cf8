"""Run `gleak.metrics.score_members.score_members` for one job."""

from pathlib import Path

from gleak.core.registry import parse
from gleak.metrics.score_members import score_members
from gleak.runtime.logs import log_to

with log_to(snakemake.log[0], snakemake.config["results_dir"]):
    score_members(
        Path(snakemake.input.members),
        Path(snakemake.input.membership),
        Path(snakemake.output.scores),
        {
            **dict(snakemake.wildcards.items()),
            "grants": snakemake.params.grants,
        },
        [parse("metric", text) for text in snakemake.params.metrics],
    )
