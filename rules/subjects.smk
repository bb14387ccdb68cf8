"""What a job is about, by its wildcards: a cell, knowledge, a capture, a study or a search."""

import re
from collections import defaultdict

from gleak.captures.locations import MODEL as CAPTURED_MODEL
from gleak.captures.locations import PRIVATE as CAPTURED_TRUTH
from gleak.captures.locations import UPDATE as CAPTURED_UPDATE
from gleak.captures.locations import Captures, check_stated_defense
from gleak.data.prepare import check_source
from gleak.studies.axis_labels import read_metric
from gleak.studies.cell import SCORED_BY
from gleak.metrics.base import metrics_of

CAPTURES = Captures(SETTINGS.captures)
readable = cache(is_unaltered)


def captured(level, file):
    """Return an input function for a file of the capture that a level's spec names.

    Check that updates were imported with the defence of the path.
    """

    def find(wildcards):
        path = checked(lambda: CAPTURES.file(cell(wildcards).specs[level].capture, file))
        if file == CAPTURED_UPDATE and workflow.is_main_process:
            checked(lambda: check_stated_defense(cell(wildcards), path))
        return path

    return find


def shares(output):
    """Return an input function for one output of the jobs that attack the shares of a cell."""

    def find(cell):
        parts = stage_files.shards_of(cell, SETTINGS.shards)
        return [Made("attack_shard", output, part) for part in parts]

    return reading(find)


def data_dir(wildcards):
    """Return the data folder if a dataset is read from it.

    Check that its data exist, or that an existing file was made from them.
    """
    dataset = cell(wildcards).dataset
    if not dataset.reads_data_dir:
        return ""
    prepared = path_of(stage_files.dataset_of(cell(wildcards)), RESULTS)
    if workflow.is_main_process and prepared.exists():
        checked(lambda: check_source(prepared, SETTINGS.data_dir))
    elif workflow.is_main_process:
        checked(lambda: dataset.check_data(SETTINGS.data_dir, download=SETTINGS.download))
    return str(SETTINGS.data_dir)


def share_of(wildcards):
    """Return the share of a cell's victims that a job attacks."""
    return Shard(cell(wildcards), int(wildcards.shard), int(wildcards.shards))


def draw_of(wildcards):
    """Return the draw of candidates of a job."""
    return CandidateDraw(cell(wildcards), int(wildcards.number))


def pretraining(wildcards):
    """Return the knowledge that a job trains, with its public dataset."""
    return checked(lambda: Pretraining.from_path(dict(wildcards.items())))


@cache
def asked():
    """Return the metrics that studies need of each cell, at the scales configured or requested."""
    needed = defaultdict(set)
    for study, scale in configured():
        for scored, metrics in study.asked_metrics(scale).items():
            needed[scored] |= metrics
    return needed


@cache
def named():
    """Return the metrics that grids name for each cell; None for one of a grid that names none."""
    found = {}
    for study, scale in configured():
        for scored, metrics in study.named_metrics(scale):
            known = found.setdefault(scored, metrics)
            found[scored] = None if None in (known, metrics) else known | metrics
    return found


def configured():
    """Yield the studies configured or requested, each with such a scale."""
    return [(study_named(name, scale), scale) for name, scale in requested()]


def requested():
    """Return the names of the studies configured or requested by path, each with such a scale."""
    found = dict.fromkeys((name, SETTINGS.scale) for name in CONFIGURED)
    for target in targets():
        match = re.search(rf"(?:^|/)studies/([^/]+)/({'|'.join(SCALES)})/", target)
        if match and file_of_study(match[1]).exists():
            found |= {match.groups(): None}
    if len({scale for _, scale in found}) > 1 and workflow.non_local_exec:
        raise SystemExit(
            f"gleak: the configured scale is {SETTINGS.scale}, and jobs on a cluster know no other: "
            "give that of the targets by --config scale=..."
        )
    return list(found)


@cache
def scored_metrics(scored, end):
    """Return the metrics of a cell: what studies need of it, and what its grids name.

    Of cells that are requested by hand, or of grids that name none, all are there, with defaults.
    """
    names = named().get(scored)
    defaults = metrics_of(end) if names is None else sorted(names, key=str)
    return [*defaults, *sorted(asked()[scored] - {*defaults}, key=str)]


def scoring(end, *levels):
    """Return `params`: metrics of a cell with this last level, fields, readable weights, and code.

    The code includes that of these levels' specs.
    """
    metrics = lambda w: scored_metrics(cell(w), end)
    specs = lambda w: [*metrics_of(end), *(cell(w).components(*levels) if levels else [])]
    weights = lambda w: frozenset().union(*(metric.weights for metric in metrics(w)))
    return {
        "metrics": lambda w: [str(metric) for metric in metrics(w)],
        "fields": lambda w: json.dumps([metric.resolved() for metric in metrics(w)]),
        "weights": lambda w: sorted(filter(readable, weights(w))),
        "source": lambda w: source_of(SCORED_BY[end], specs(w)),
    }


def study_of(wildcards):
    """Return a study, configured or requested by path."""
    return study_named(wildcards.study, wildcards.scale)


@cache
def study_named(name, scale=SETTINGS.scale):
    """Return a study at a scale; on a cluster node, studies are read when they are needed."""
    if name in STUDIES and scale == SETTINGS.scale:
        return STUDIES[name]
    return checked(lambda: load_study(file_of_study(name), [scale]).at(scale))


def claimed_metrics(wildcards):
    """Return the metrics of a study's claims."""
    return [read_metric(claim.metric) for claim in study_of(wildcards).claims(wildcards.scale)]


def study_file(wildcards):
    """Return the path of a study file."""
    return file_of_study(wildcards.study)


def file_of_study(name):
    """Return the path of the file of a study, configured or in the folder of studies."""
    return CONFIGURED.get(name, STUDY_FILES / f"{name}.yaml")


def published(wildcards):
    """Return the file with the paper's published numbers, if the study has one."""
    file = study_file(wildcards).parent / "published" / f"{wildcards.study}.csv"
    return [file] if file.exists() else []


def recorded(wildcards):
    """Return the file with the recorded verdicts on a study's headline claims, if it has one."""
    file = STUDY_FILES.parent / "docs/results" / wildcards.study / "headlines.csv"
    own = study_file(wildcards).parent == STUDY_FILES
    return [file] if own and file.exists() else []


@cache
def planned(name, scale):
    """Return a study without the cells that user-defined networks do not fit; log these once."""
    study = checked(lambda: study_named(name, scale).examined(scale, SETTINGS.data_dir))
    if workflow.is_main_process:
        for grid, refused in study.refused(scale).items():
            for refusal in refused:
                logger.warning(f"gleak: study {name}, grid {grid}: n/a: {refusal}")
    return study


def grid_of(wildcards):
    """Return the grid that a job tabulates."""
    scale = wildcards.scale
    return checked(lambda: planned(wildcards.study, scale).grid(wildcards.grid, scale))


def figure_spec(wildcards):
    """Return the spec of the figure that a job draws."""
    return checked(lambda: study_of(wildcards).figure(wildcards.figure, wildcards.scale))


def part_of(wildcard=""):
    """Return a function of the wildcards for a grid or figure of a study, or the whole study."""

    def find(wildcards):
        name, scale = getattr(wildcards, wildcard, ""), wildcards.scale
        return StudyPart(planned(wildcards.study, scale), scale, wildcard, name)

    return find


def studies_writing(*suffixes):
    """Return a pattern of studies followed by one of their figures with these suffixes.

    A figure of the same name in another study may have other suffixes. On a cluster node the job
    has been chosen, so any study matches.
    """
    if not workflow.is_main_process:
        return "[^/]+"
    patterns = []
    for study, scale in configured():
        figures = study.figures.items()
        own = [re.escape(key) for key, spec in figures if set(spec.suffixes) == set(suffixes)]
        if own:
            patterns.append(rf"{re.escape(study.name)}(?=/{scale}/(?:{'|'.join(own)})\.)")
    return "|".join(patterns) or "(?!)"


def every_figure():
    """Yield all files of all figures of the configured studies, and the verdicts."""
    for study in STUDIES.values():
        folder = STUDY.format(study=study.name, scale=SETTINGS.scale)
        for figure, spec in study.figures.items():
            yield from (f"{folder}/{figure}{suffix}" for suffix in spec.suffixes)
        if study.expectations:
            yield f"{folder}/expectations.csv"


def category_of(wildcards):
    """Return the heading of a study in the report, with its place in the configuration."""
    study, place = study_of(wildcards), [*CONFIGURED, wildcards.study].index(wildcards.study) + 1
    return to_report(f"{place}. {study.name.upper()}: {study.title}")


def in_report(path, caption, labels):
    """Return a file of a study, included in the report with the labels of its row."""
    caption = f"../docs/report/{caption}.rst"
    return report(path, caption, category=category_of, subcategory="{scale}", labels=labels)


def reported(suffix, file):
    """Return one of a figure's files, included in the report."""

    def labels(wildcards):
        spec, place = figure_spec(wildcards), study_of(wildcards).position(wildcards.figure)
        return {
            "no.": f"{place:02}",
            "shown": to_report(spec.title or wildcards.figure.replace("_", " ")),
            "in the paper": to_report(spec.reproduces.partition(" (")[0]),
            "file": file,
        }

    return in_report(f"{STUDY}/{{figure}}{suffix}", "caption", labels)


def verdicts(suffix, file):
    """Return one of the files with the verdicts on a study's claims, included in the report."""
    labels = {"no.": "00", "shown": "Claims and verdicts", "in the paper": "", "file": file}
    return in_report(f"{STUDY}/expectations.{suffix}", "expectations", labels)


def search_of(wildcards):
    """Return the search of a job; check a user-defined network when jobs are planned."""
    search = checked(lambda: study_of(wildcards).search(wildcards.search, wildcards.scale))
    if workflow.is_main_process:
        checked(lambda: check_own_model(search.cell, SETTINGS.data_dir))
    return search


def searched(wildcards):
    """Return the search of a job as a part of its study."""
    search = search_of(wildcards)
    return StudyPart(study_of(wildcards), wildcards.scale, "search", search.name)


def every_search():
    """Yield the result file of every search of the configured studies."""
    for study in STUDIES.values():
        for search in study.searches:
            part = StudyPart(study, SETTINGS.scale, "search", search)
            yield path_of(Made("search", "chosen", part), RESULTS)
