"""Run `gleak.metrics.score.score_model` for one job."""

from pathlib import Path

from gleak.core.registry import parse
from gleak.metrics.score import score_model
from gleak.runtime.logs import log_to

with log_to(snakemake.log[0], snakemake.config["results_dir"]):
    score_model(
        Path(snakemake.input.model),
        Path(snakemake.output.scores),
        dict(snakemake.wildcards.items()),
        [parse("metric", text) for text in snakemake.params.metrics],
    )
