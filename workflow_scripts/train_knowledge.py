"""Run `gleak.knowledge.train_knowledge.train_knowledge` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.knowledge.base import Pretraining
from gleak.knowledge.train_knowledge import train_knowledge
from gleak.runtime.device import prepare_cpu
from gleak.runtime.logs import log_to
from gleak.runtime.provenance import record

output = Path(snakemake.output.knowledge)
with (
    log_to(snakemake.log[0], snakemake.config["results_dir"]),
    record(output.parent, threads=snakemake.threads) as facts,
    refusing(output),
):
    prepare_cpu(snakemake.threads)
    facts["earlier"] = train_knowledge(
        Pretraining.from_path(dict(snakemake.wildcards.items())).knowledge,
        Path(snakemake.input.dataset),
        output,
        seed=snakemake.params.seed,
        device=snakemake.config["device"],
    )
