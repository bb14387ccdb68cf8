"""Run `gleak.metrics.score.score` for one job, on a reconstruction or on the truth."""

from pathlib import Path

from gleak.core.registry import parse
from gleak.metrics.score import score
from gleak.runtime.logs import log_to
from gleak.studies.cell import LEVELS, TRUTH

levels = {"attack": TRUTH, **dict(snakemake.wildcards.items())}
reconstruction = snakemake.input.get("reconstruction")
with log_to(snakemake.log[0], snakemake.config["results_dir"]):
    score(
        Path(snakemake.input.private),
        Path(snakemake.output.scores),
        {**{level: levels[level] for level in LEVELS}, "grants": snakemake.params.grants},
        Path(reconstruction) if reconstruction else None,
        [parse("metric", text) for text in snakemake.params.metrics],
        knowledge=[Path(path) for path in snakemake.input.get("knowledge", [])],
        evaluators=[Path(path) for path in snakemake.input.get("evaluators", [])],
        dataset=Path(snakemake.input.dataset),
    )
