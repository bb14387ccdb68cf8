"""Run `gleak.training.train_model.train_model` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.runtime.device import prepare_cpu
from gleak.runtime.logs import log_to
from gleak.runtime.provenance import record
from gleak.studies.cell import Cell
from gleak.training.base import InitialisedSpec
from gleak.training.train_model import train_model

output = Path(snakemake.output.model)
with (
    log_to(snakemake.log[0], snakemake.config["results_dir"]),
    record(output.parent, threads=snakemake.threads) as facts,
    refusing(output),
):
    prepare_cpu(snakemake.threads)
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
