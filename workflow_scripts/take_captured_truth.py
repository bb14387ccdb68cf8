"""Run `gleak.captures.take.take_captured_truth` for one job."""

from pathlib import Path

from gleak.captures.take import take_captured_truth
from gleak.runtime.device import prepare_cpu
from gleak.runtime.gpu_slots import assigned
from gleak.runtime.logs import log_to
from gleak.studies.cell import Cell

with (
    log_to(snakemake.log[0], snakemake.config["results_dir"]),
    assigned(snakemake.resources, snakemake.config["device"]) as device,
):
    prepare_cpu(snakemake.threads)
    take_captured_truth(
        Cell.from_path(dict(snakemake.wildcards.items())),
        Path(snakemake.input.captured),
        Path(snakemake.input.dataset),
        Path(snakemake.input.parameters),
        Path(snakemake.output.private).parent,
        seed=snakemake.params.seed,
        device=device,
    )
