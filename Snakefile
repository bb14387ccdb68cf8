"""The workflow: from data to every figure of the studies. `snakemake` makes all of them."""

from snakemake.utils import min_version

min_version("9.0")


configfile: "config.yaml"


include: "rules/common.smk"
include: "rules/dataset.smk"
include: "rules/model.smk"
include: "rules/knowledge.smk"
include: "rules/craft.smk"
include: "rules/simulate.smk"
include: "rules/capture.smk"
include: "rules/attack.smk"
include: "rules/score.smk"
include: "rules/study.smk"
include: "rules/search.smk"


localrules:
    all,
    score_model,
    searches,
    tabulate,


# Unpacked, because Snakemake loses the first file of an iterator.
rule all:
    """Every figure and table of the configured studies at the configured scale."""
    default_target: True
    input:
        *every_figure(),


rule searches:
    """What every search of the configured studies chooses; `gleak adopt` then has it used."""
    input:
        *every_search(),
