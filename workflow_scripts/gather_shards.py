"""Run `gleak.attacks.run_attack.gather_shards` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.attacks.run_attack import gather_shards, total_cost
from gleak.runtime.job import job

output = Path(snakemake.output.reconstruction)
shards = [Path(path) for path in snakemake.input.reconstructions]
with job(snakemake, output.parent) as facts, refusing(output):
    facts |= total_cost(shards)
    gather_shards(shards, output)
