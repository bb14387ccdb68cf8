"""Tables and figures of the studies, each with its numbers as CSV."""

import re

STUDY = f"{RESULTS}/studies/{{study}}/{{scale}}"


def study_of(wildcards):
    """Return a study, configured or requested by path."""
    if wildcards.study not in STUDIES:
        STUDIES[wildcards.study] = checked(lambda: load_study(study_file(wildcards)))
    return STUDIES[wildcards.study]


def study_file(wildcards):
    """Return the path of a study file."""
    return Path(workflow.basedir) / "studies" / f"{wildcards.study}.yaml"


def published(wildcards):
    """Return the file with the paper's published numbers, if the study has one."""
    file = Path(workflow.basedir) / "studies" / "published" / f"{wildcards.study}.csv"
    return [file] if file.exists() else []


def planned(wildcards):
    """Return a study without the cells of its scale that user-defined networks do not fit."""
    return planned_at(study_of(wildcards).name, wildcards.scale)


@cache
def planned_at(name, scale):
    """Return `planned` for names, of a study that has been read; log refused cells once."""
    study = checked(lambda: STUDIES[name].examined(scale, SETTINGS.data_dir))
    if workflow.is_main_process:
        for grid, refused in study.refused(scale).items():
            for refusal in refused:
                logger.warning(f"gleak: study {name}, grid {grid}: n/a: {refusal}")
    return study


def grid_of(wildcards):
    """Return the grid that a job tabulates."""
    return checked(lambda: planned(wildcards).grid(wildcards.grid, wildcards.scale))


def figure_spec(wildcards):
    """Return the spec of the figure that a job draws."""
    return checked(lambda: study_of(wildcards).figure(wildcards.figure))


def part_of(wildcard=""):
    """Return a function of the wildcards for a grid or figure of a study, or the whole study."""

    def find(wildcards):
        name = getattr(wildcards, wildcard) if wildcard else ""
        return StudyPart(planned(wildcards), wildcards.scale, wildcard, name)

    return find


def studies_writing(*suffixes):
    """Return a pattern of studies followed by one of their figures with these suffixes.

    A figure of the same name in another study may have other suffixes.
    """
    patterns = []
    for name, study in STUDIES.items():
        figures = study.figures.items()
        own = [re.escape(key) for key, spec in figures if set(spec.suffixes) == set(suffixes)]
        if own:
            patterns.append(rf"{re.escape(name)}(?=/[^/]+/(?:{'|'.join(own)})\.)")
    return "|".join(patterns) or "(?!)"


def every_figure():
    """Yield all files of all figures of the configured studies, and the verdicts."""
    for name, study in STUDIES.items():
        folder = STUDY.format(study=name, scale=SETTINGS.scale)
        for figure, spec in study.figures.items():
            yield from (f"{folder}/{figure}{suffix}" for suffix in spec.suffixes)
        if study.expectations:
            yield f"{folder}/expectations.csv"


def reported(suffix, file):
    """Return one of a figure's files, included in the report."""
    return report(
        f"{STUDY}/{{figure}}{suffix}",
        caption="../docs/report/caption.rst",
        category="{study}",
        subcategory="{scale}",
        labels={"figure": "{figure}", "file": file},
    )


def drawn():
    """Return the files that every figure writes."""
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
    """Draw one figure of a study, from the scores of its grids if it has any."""
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
    """Check the paper's claims against the scores; a failed gate stops the workflow."""
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
