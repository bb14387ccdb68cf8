"""Run `gleak.simulation.simulate.simulate_clients` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.runtime.job import job
from gleak.simulation.simulate import simulate_clients
from gleak.studies.cell import Cell

folder = Path(snakemake.output.sent).parent
with job(snakemake, folder), refusing(*snakemake.output):
    cell = Cell.from_path(dict(snakemake.wildcards.items()))
    simulate_clients(
        cell.client,
        cell.defense,
        Path(snakemake.input.dataset),
        Path(snakemake.input.parameters),
        folder,
        spec=str(cell),
        seed=snakemake.params.seed,
        device=snakemake.config["device"],
    )
