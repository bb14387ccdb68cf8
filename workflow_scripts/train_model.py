"""Run `gleak.training.train_model.train_model` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.runtime.job import job
from gleak.studies.cell import Cell
from gleak.training.base import InitialisedSpec
from gleak.training.train_model import train_model

output = Path(snakemake.output.model)
with job(snakemake, output.parent) as facts, refusing(output):
    cell = Cell.from_path(dict(snakemake.wildcards.items()))
    assert isinstance(cell.training, InitialisedSpec)
    facts["earlier"] = train_model(
        cell.model,
        cell.training,
        Path(snakemake.input.dataset),
        output,
        seed=snakemake.params.seed,
        device=snakemake.config["device"],
    )
