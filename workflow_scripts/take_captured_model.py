"""Run `gleak.captures.take.take_captured_model` for one job."""

from pathlib import Path

from gleak.captures.take import take_captured_model
from gleak.runtime.device import prepare_cpu
from gleak.runtime.logs import log_to
from gleak.runtime.provenance import record
from gleak.studies.cell import Cell

output = Path(snakemake.output.model)
with (
    log_to(snakemake.log[0], snakemake.config["results_dir"]),
    record(output.parent, threads=snakemake.threads),
):
    prepare_cpu(snakemake.threads)
    take_captured_model(
        Cell.from_path(dict(snakemake.wildcards.items())),
        Path(snakemake.input.captured),
        Path(snakemake.input.dataset),
        output,
    )
