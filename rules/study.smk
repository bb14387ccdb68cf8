"""Tables and figures of the studies, each with its numbers beside it."""

import re

STUDY = f"{RESULTS}/studies/{{study}}/{{scale}}"


def study_of(wildcards):
    """A study, configured or asked for by path."""
    if wildcards.study not in STUDIES:
        STUDIES[wildcards.study] = checked(lambda: load_study(study_file(wildcards)))
    return STUDIES[wildcards.study]


def study_file(wildcards):
    """Where a study is written."""
    return Path(workflow.basedir) / "studies" / f"{wildcards.study}.yaml"


def published(wildcards):
    """The paper's own numbers, if the study has any."""
    file = Path(workflow.basedir) / "studies" / "published" / f"{wildcards.study}.csv"
    return [file] if file.exists() else []


def planned(wildcards):
    """A study without the cells of its scale that users' own networks do not serve."""
    return planned_at(study_of(wildcards).name, wildcards.scale)


@cache
def planned_at(name, scale):
    """The same by names, of a study that has been read; what is left out is said once."""
    study = checked(lambda: STUDIES[name].examined(scale, SETTINGS.data_dir))
    if workflow.is_main_process:
        for grid, refused in study.refused(scale).items():
            for refusal in refused:
                logger.warning(f"gleak: study {name}, grid {grid}: n/a: {refusal}")
    return study


def grid_of(wildcards):
    """The grid that a job puts into one table."""
    return checked(lambda: planned(wildcards).grid(wildcards.grid, wildcards.scale))


def figure_spec(wildcards):
    """The figure a job draws."""
    return checked(lambda: study_of(wildcards).figure(wildcards.figure))


def part_of(wildcard=""):
    """The grid or figure a job makes, in its study; the whole study unless named."""

    def find(wildcards):
        name = getattr(wildcards, wildcard) if wildcard else ""
        return StudyPart(planned(wildcards), wildcards.scale, wildcard, name)

    return find


def studies_writing(*suffixes):
    """A pattern for studies that are followed by a figure of theirs that writes such files.

    Another study's figure of the same name may write others.
    """
    patterns = []
    for name, study in STUDIES.items():
        figures = study.figures.items()
        own = [re.escape(key) for key, spec in figures if set(spec.suffixes) == set(suffixes)]
        if own:
            patterns.append(rf"{re.escape(name)}(?=/[^/]+/(?:{'|'.join(own)})\.)")
    return "|".join(patterns) or "(?!)"


def every_figure():
    """Every file that every figure of the configured studies writes, and the verdicts."""
    for name, study in STUDIES.items():
        folder = STUDY.format(study=name, scale=SETTINGS.scale)
        for figure, spec in study.figures.items():
            yield from (f"{folder}/{figure}{suffix}" for suffix in spec.suffixes)
        if study.expectations:
            yield f"{folder}/expectations.csv"


def reported(suffix, file):
    """One of a figure's files, shown in the report."""
    return report(
        f"{STUDY}/{{figure}}{suffix}",
        caption="../docs/report/caption.rst",
        category="{study}",
        subcategory="{scale}",
        labels={"figure": "{figure}", "file": file},
    )


def drawn():
    """What every figure writes."""
    return [
        reported(".svg", "picture"),
        reported(".csv", "numbers"),
        f"{STUDY}/{{figure}}.png",
    ]


rule tabulate:
    """Put the scores of a grid's cells into one table."""
    input:
        unpack(inputs("tabulate", part_of("grid"))),
    output:
        **outputs("tabulate"),
    log:
        log_of("tabulate"),
    benchmark:
        benchmark_of("tabulate")
    threads: 1
    resources:
        **resources("tabulate"),
    params:
        **keyed_on("tabulate"),
        refused=lambda w: json.dumps([refusal.row for refusal in grid_of(w).refused]),
    script:
        "../workflow_scripts/tabulate.py"


rule draw:
    """Draw one figure of a study, from its grid's scores if it has one."""
    input:
        unpack(inputs("draw", part_of("figure"))),
        study=study_file,
        published=published,
    output:
        *drawn(),
    log:
        log_of("draw"),
    benchmark:
        benchmark_of("draw")
    wildcard_constraints:
        study=studies_writing(".svg", ".png", ".csv"),
    threads: 1
    resources:
        **resources("draw"),
    params:
        figure=lambda w: json.dumps(figure_spec(w).resolved()),
        source=lambda w: source_digest(STAGES["draw"].code, *sorted(figure_spec(w).modules)),
        caption=lambda w: planned(w).caption(w.figure, w.scale),
    script:
        "../workflow_scripts/draw.py"


use rule draw as draw_table with:
    output:
        *drawn(),
        f"{STUDY}/{{figure}}.md",
        f"{STUDY}/{{figure}}.tex",
    wildcard_constraints:
        study=studies_writing(".svg", ".png", ".csv", ".md", ".tex"),


rule judge:
    """Hold the paper's claims against our scores; a claim marked as a gate stops the workflow."""
    input:
        unpack(inputs("judge", part_of())),
        study=study_file,
    output:
        csv=report(
            outputs("judge")["csv"],
            caption="../docs/report/expectations.rst",
            category="{study}",
            subcategory="{scale}",
            labels={"figure": "expectations", "file": "verdicts"},
        ),
        markdown=outputs("judge")["markdown"],
    log:
        log_of("judge"),
    benchmark:
        benchmark_of("judge")
    threads: 1
    resources:
        **resources("judge"),
    params:
        **keyed_on("judge"),
    script:
        "../workflow_scripts/judge.py"
