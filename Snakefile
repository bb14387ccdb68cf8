"""Workflow from the data to the figures of all configured studies."""

import gc

from snakemake.utils import min_version

from gleak.studies.targets import check_target

min_version("9.0")

# Nearly all objects of the graph live until the end of the run. Python's default of a collection
# after 700 new objects takes a sixth of the time of a run that has nothing to do.
gc.set_threshold(200_000, 50, 50)


configfile: "config.yaml"


report: "docs/report/workflow.rst"


include: "rules/common.smk"
include: "rules/subjects.smk"
include: "rules/dataset.smk"
include: "rules/model.smk"
include: "rules/knowledge.smk"
include: "rules/craft.smk"
include: "rules/simulate.smk"
include: "rules/capture.smk"
include: "rules/attack.smk"
include: "rules/membership.smk"
include: "rules/audit.smk"
include: "rules/score.smk"
include: "rules/study.smk"
include: "rules/search.smk"
include: "rules/forkserver.smk"


onstart:
    prepare_snakemake()


onsuccess:
    for target, reason in refused_targets(targets()):
        raise SystemExit(f"gleak: {target}: {reason}")


localrules:
    all,
    draw,
    draw_table,
    judge,
    score_audit,
    score_members,
    score_model,
    searches,
    tabulate,


# Unpacked, because Snakemake loses the first file of an iterator.
rule all:
    """Create all figures and tables of the configured studies at the configured scale."""
    default_target: True
    input:
        *every_figure(),


rule searches:
    """Run all searches of the configured studies; `gleak adopt` then adopts their results."""
    input:
        *every_search(),


if workflow.is_main_process and targets():
    known_studies = {file.stem: file for file in STUDY_FILES.glob("*.yaml")} | CONFIGURED
    known_rules = [rule.name for rule in workflow.rules if not rule.has_wildcards()]
    for target in targets():
        checked(lambda: check_target(target, RESULTS, known_studies, known_rules))


for name, study in STUDIES.items():
    for line in study.substitutes(SETTINGS.scale):
        logger.warning(f"gleak: study {name}: {line}")
