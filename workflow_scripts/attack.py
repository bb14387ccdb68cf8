"""Run `gleak.attacks.run_attack.attack` for one job."""

from pathlib import Path

from gleak.artifacts.store import refusing
from gleak.attacks.run_attack import attack, share
from gleak.runtime.job import job
from gleak.studies.cell import Cell

wildcards = dict(snakemake.wildcards.items())
output = Path(snakemake.output.reconstruction)
with job(snakemake, output.parent) as facts, refusing(output):
    cell = Cell.from_path(wildcards)
    shard, shards = int(wildcards.get("shard", 1)), int(wildcards.get("shards", 1))
    facts["earlier"] = attack(
        cell.attack,
        Path(snakemake.input.sent),
        Path(snakemake.input.parameters),
        {path.stem: path for path in map(Path, snakemake.input.granted)},
        output,
        secret_path=Path(snakemake.input.secret[0]) if snakemake.input.secret else None,
        knowledge_paths=[Path(path) for path in snakemake.input.knowledge],
        victims=share(cell.client.victims, shard, shards),
        cell_victims=cell.client.victims,
        seed=snakemake.params.seed,
        device=snakemake.config["device"],
    )
