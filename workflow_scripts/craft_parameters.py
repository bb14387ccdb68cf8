"""Run `gleak.crafting.base.craft_parameters` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.crafting.base import craft_parameters
from gleak.runtime.job import job
from gleak.studies.cell import Cell

folder = Path(snakemake.output.parameters).parent
with job(snakemake, folder), refusing(*snakemake.output):
    crafting = Cell.from_path(dict(snakemake.wildcards.items())).crafting
    craft_parameters(crafting, Path(snakemake.input.model), folder, seed=snakemake.params.seed)
