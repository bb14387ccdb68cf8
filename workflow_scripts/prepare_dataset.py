"""Run `gleak.data.prepare.prepare_dataset` for one job."""

from pathlib import Path
from typing import TYPE_CHECKING

from gleak.data.prepare import prepare_dataset
from gleak.experiments.cell import Cell
from gleak.runtime.logs import log_to
from gleak.runtime.provenance import record

if TYPE_CHECKING:
    from snakemake.iocontainers import Snakemake

    snakemake: Snakemake

output = Path(snakemake.output.dataset)
with (
    log_to(snakemake.log[0], snakemake.config["results_dir"]),
    record(output.parent),
):
    prepare_dataset(
        Cell.from_path(dict(snakemake.wildcards.items())).dataset,
        Path(snakemake.config["data_dir"]),
        snakemake.params.seed,
        output,
    )
