"""Run `gleak.figures.draw.draw` for one job."""

from pathlib import Path

from gleak.figures.draw import draw
from gleak.runtime.logs import log_to
from gleak.studies.cell import Paths
from gleak.studies.study import load_study

published = snakemake.input.get("published")
with log_to(snakemake.log[0], snakemake.config["results_dir"]):
    draw(
        load_study(Path(snakemake.input.study), [snakemake.wildcards.scale]),
        snakemake.wildcards.figure,
        snakemake.wildcards.scale,
        [Path(path) for path in snakemake.input.tables],
        Path(str(published)) if published else None,
        Paths(Path(snakemake.config["results_dir"])),
        Path(snakemake.output[0]).parent,
    )
