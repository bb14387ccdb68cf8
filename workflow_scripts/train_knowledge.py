"""Run `gleak.knowledge.train_knowledge.train_knowledge` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.knowledge.base import Pretraining
from gleak.knowledge.train_knowledge import train_knowledge
from gleak.runtime.job import job

output = Path(snakemake.output.knowledge)
with job(snakemake, output.parent) as facts, refusing(output):
    facts["earlier"] = train_knowledge(
        Pretraining.from_path(dict(snakemake.wildcards.items())).knowledge,
        Path(snakemake.input.dataset),
        output,
        seed=snakemake.params.seed,
        device=snakemake.config["device"],
    )
