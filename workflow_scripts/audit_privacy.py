"""Run `gleak.membership.audit_privacy.audit_privacy` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.membership.audit_privacy import audit_privacy
from gleak.runtime.job import job
from gleak.studies.cell import Cell

output = Path(snakemake.output.audit)
with job(snakemake, output.parent), refusing(output):
    cell = Cell.from_path(dict(snakemake.wildcards.items()))
    audit_privacy(
        cell.attack,
        cell.client,
        cell.defense,
        next(map(Path, snakemake.input.dataset), None),
        next(map(Path, snakemake.input.parameters), None),
        output,
        spec=str(cell),
        seed=snakemake.params.seed,
        device=snakemake.config["device"],
    )
