"""Run `gleak.studies.search.run.run_search` for one job."""

from pathlib import Path

from gleak.runtime.job import job
from gleak.studies.search.declaration import Declaration, read_search
from gleak.studies.search.run import run_search

folder = Path(snakemake.output.chosen).parent
with job(snakemake, folder) as facts:
    declared = Declaration.model_validate_json(snakemake.params.declared)
    facts["earlier"] = run_search(
        read_search(snakemake.wildcards.search, declared),
        Path(snakemake.input.sent),
        Path(snakemake.input.parameters),
        {path.stem: path for path in map(Path, snakemake.input.granted)},
        Path(snakemake.input.private),
        folder,
        study=snakemake.wildcards.study,
        scale=snakemake.wildcards.scale,
        seed=snakemake.params.seed,
        secret_path=Path(snakemake.input.secret[0]) if snakemake.input.secret else None,
        knowledge_paths=[Path(path) for path in snakemake.input.knowledge],
        device=snakemake.config["device"],
    )
