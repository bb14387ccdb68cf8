"""Run `gleak.data.prepare.prepare_dataset` for one job."""

from pathlib import Path

from gleak.core.settings import Settings
from gleak.data.prepare import prepare_dataset, source_facts
from gleak.runtime.job import job
from gleak.studies.cell import Cell

output = Path(snakemake.output.dataset)
spec = Cell.from_path(dict(snakemake.wildcards.items())).dataset
settings = Settings.read(snakemake.config)
with job(snakemake, output.parent, **source_facts(spec, settings.data_dir)):
    prepare_dataset(
        spec, settings.data_dir, snakemake.params.seed, output, download=settings.download
    )
