"""Tables and figures of the studies, each with its numbers as CSV."""


rule tabulate:
    """Put the scores of a grid's cells into one table."""
    input:
        scores=reading(lambda part: stage_files.reads_of_table(part)["scores"], part_of("grid")),
    output:
        table=f"{STUDY}/grids/{{grid}}.csv",
    log:
        log_of("tabulate"),
    benchmark:
        benchmark_of("tabulate")
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("tabulate"),
    params:
        **keyed_on("tabulate"),
        refused=lambda w: json.dumps([refusal.row for refusal in grid_of(w).refused]),
        networks=lambda w: grid_of(w).networks,
    script:
        "../workflow_scripts/tabulate.py"


rule draw:
    """Draw one figure of a study, from the scores of its grids if it has any."""
    input:
        unpack(reading(stage_files.reads_of_figure, part_of("figure"))),  # tables, images, trained
        study=study_file,
        published=published,
    output:
        reported(".svg", "picture"),
        reported(".csv", "values"),
        f"{STUDY}/{{figure}}.png",
    log:
        log_of("draw"),
    benchmark:
        benchmark_of("draw")
    wildcard_constraints:
        study=studies_writing(".svg", ".png", ".csv"),
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("draw"),
    params:
        figure=lambda w: to_json(figure_spec(w).resolved()),
        source=lambda w: source_of("draw", [figure_spec(w)]),
        caption=lambda w: planned(w.study, w.scale).caption(w.figure, w.scale),
    script:
        "../workflow_scripts/draw.py"


use rule draw as draw_table with:
    output:
        reported(".html", "table"),
        reported(".csv", "values"),
        f"{STUDY}/{{figure}}.tex",
    wildcard_constraints:
        study=studies_writing(".html", ".csv", ".tex"),


rule judge:
    """Check the paper's claims against the scores; a failed gate stops the workflow."""
    input:
        tables=reading(lambda part: stage_files.reads_of_verdicts(part)["tables"], part_of()),
        datasets=reading(lambda part: stage_files.reads_of_verdicts(part)["datasets"], part_of()),
        study=study_file,
        published=published,
        recorded=recorded,
    output:
        csv=verdicts("csv", "values"),
        markdown=f"{STUDY}/expectations.md",
        page=verdicts("html", "picture"),
    log:
        log_of("judge"),
    benchmark:
        benchmark_of("judge")
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("judge"),
    params:
        source=lambda w: source_of("judge", claimed_metrics(w)),
    script:
        "../workflow_scripts/judge.py"
