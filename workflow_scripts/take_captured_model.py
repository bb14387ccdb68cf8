"""Run `gleak.captures.take.take_captured_model` for one job."""

from pathlib import Path

from gleak.captures.take import take_captured_model
from gleak.runtime.job import job
from gleak.studies.cell import Cell

output = Path(snakemake.output.model)
with job(snakemake, output.parent):
    cell = Cell.from_path(dict(snakemake.wildcards.items()))
    inputs = Path(snakemake.input.captured), Path(snakemake.input.dataset)
    take_captured_model(cell, *inputs, output)
