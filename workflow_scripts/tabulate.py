"""Run `gleak.figures.tabulate.tabulate` for one job."""

import json
from pathlib import Path

from gleak.figures.tabulate import tabulate
from gleak.runtime.logs import log_to

with log_to(snakemake.log[0], snakemake.config["results_dir"]):
    tabulate(
        [Path(path) for path in snakemake.input.scores],
        Path(snakemake.output.table),
        json.loads(snakemake.params.refused),
        snakemake.params.networks,
    )
