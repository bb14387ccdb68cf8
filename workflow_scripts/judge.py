"""Run `gleak.figures.judge.judge_study` for one job."""

from pathlib import Path

from gleak.figures.judge import judge_study
from gleak.runtime.logs import log_to
from gleak.studies.study import load_study

published, recorded = (snakemake.input.get(name) for name in ("published", "recorded"))
scale = snakemake.wildcards.scale
with log_to(snakemake.log[0], snakemake.config["results_dir"]):
    judge_study(
        load_study(Path(snakemake.input.study), [scale]).at(scale),
        scale,
        {path.stem: path for path in map(Path, snakemake.input.tables)},
        Path(snakemake.output.csv).parent,
        Path(str(published)) if published else None,
        Path(str(recorded)) if recorded else None,
        map(Path, snakemake.input.datasets),
    )
