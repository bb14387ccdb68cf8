"""Run `gleak.captures.take.take_captured_update` for one job."""

from pathlib import Path

from gleak.captures.take import take_captured_update
from gleak.runtime.job import job
from gleak.studies.cell import Cell

output = Path(snakemake.output.sent)
with job(snakemake, output.parent):
    cell = Cell.from_path(dict(snakemake.wildcards.items()))
    take_captured_update(cell, Path(snakemake.input.captured), output)
