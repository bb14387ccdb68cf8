"""Run `gleak.membership.infer_members.infer_members` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.membership.infer_members import infer_members
from gleak.runtime.job import job
from gleak.studies.cell import Cell

output = Path(snakemake.output.membership)
with job(snakemake, output.parent), refusing(output):
    infer_members(
        Cell.from_path(dict(snakemake.wildcards.items())).attack,
        Path(snakemake.input.sent),
        Path(snakemake.input.parameters),
        Path(snakemake.input.candidates),
        output,
        seed=snakemake.params.seed,
        device=snakemake.config["device"],
    )
