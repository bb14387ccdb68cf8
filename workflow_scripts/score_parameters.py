"""Run `gleak.metrics.score.score_parameters` for one job."""

from pathlib import Path

from gleak.core.registry import parse
from gleak.metrics.score import score_parameters
from gleak.runtime.logs import log_to

with log_to(snakemake.log[0], snakemake.config["results_dir"]):
    score_parameters(
        Path(snakemake.input.parameters),
        Path(snakemake.input.dataset),
        Path(snakemake.output.scores),
        dict(snakemake.wildcards.items()),
        snakemake.params.seed,
        [parse("metric", text) for text in snakemake.params.metrics],
    )
