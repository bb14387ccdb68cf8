"""Run `gleak.simulation.draw_candidates.draw_candidates` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.runtime.logs import log_to
from gleak.simulation.draw_candidates import draw_candidates

folder = Path(snakemake.output.members).parent
with (
    log_to(snakemake.log[0], snakemake.config["results_dir"]),
    refusing(*snakemake.output),
):
    draw_candidates(
        Path(snakemake.input.dataset),
        Path(snakemake.input.private),
        folder,
        split=snakemake.params.split,
        of_own_classes=snakemake.params.of_own_classes,
        count=int(snakemake.wildcards.number),
        seed=snakemake.params.seed,
    )
