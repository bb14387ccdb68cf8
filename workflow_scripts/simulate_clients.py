"""Run `gleak.simulation.simulate.simulate_clients` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.runtime.device import prepare_cpu
from gleak.runtime.logs import log_to
from gleak.runtime.provenance import record
from gleak.simulation.simulate import simulate_clients
from gleak.studies.cell import Cell

folder = Path(snakemake.output.sent).parent
with (
    log_to(snakemake.log[0], snakemake.config["results_dir"]),
    record(folder, threads=snakemake.threads),
    refusing(*snakemake.output),
):
    prepare_cpu(snakemake.threads)
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
