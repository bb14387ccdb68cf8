"""Run `gleak.captures.take.take_captured_update` for one job."""

from pathlib import Path

from gleak.captures.take import take_captured_update
from gleak.runtime.logs import log_to
from gleak.runtime.provenance import record
from gleak.studies.cell import Cell

output = Path(snakemake.output.sent)
with (
    log_to(snakemake.log[0], snakemake.config["results_dir"]),
    record(output.parent),
):
    take_captured_update(
        Cell.from_path(dict(snakemake.wildcards.items())),
        Path(snakemake.input.captured),
        output,
    )
