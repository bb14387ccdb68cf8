"""A tiny study run whole: what stands in its files, and what an edit has run again."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree

import numpy as np
import pandas as pd
import pytest
import yaml

from gleak.artifacts.model import Model
from gleak.core.markup import to_report
from gleak.metrics.score_table import UNAVAILABLE, read_scores
from tests.hostile_names import ALL, Page, shown
from tests.project import OF_THE_MACHINE, Job, Project, copy_project

CPL, GI = "cpl+iterations=20", "invertgrad+iterations=5"
SCORED = [CPL, GI, "blind", "truth"]
RANGES = {
    "mse": (0, 1),
    "psnr": (0, 100),
    "ssim": (-1, 1),
    "success_content": (0, 1),
    "success_labels": (0, 1),
}
BEST = {"mse": 0, "psnr": 100, "ssim": 1, "success_content": 1, "success_labels": 1}
FIGURES = ["errors", "budget", "pictures", "accuracy", "audits"]
TABLES = {"errors", "accuracy", "audits"}
FL = "federated+clients=10+rounds=3+defense=topk"
LEVELS = {
    **dict.fromkeys(["train_model", "score_model"], "training"),
    **dict.fromkeys(["craft_parameters", "score_parameters"], "crafting"),
}
DRAWN = {"draw errors", "draw budget", "draw pictures"}
STUDY = {"tabulate attacks", "judge", "all", *DRAWN}
MODELS = {"tabulate models", "judge", "all", "draw accuracy"}
BROADCASTS = {"tabulate broadcasts", "judge", "all", "draw audits"}
AUDITS = {"score_parameters honest", "score_parameters fishing"}
FISHED = {"craft_parameters fishing", "score_parameters fishing"}
MODEL_SCORES = {f"score_model {FL}", "score_model untrained+init=uniform"}
SCORES = {f"score {CPL}", f"score {GI}", "score blind"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy in which the tiny study has run whole, its results in a folder elsewhere.

    Tests leave it as it is.
    """
    root = copy_project(tmp_path_factory.mktemp("finished"))
    results = tmp_path_factory.mktemp("elsewhere") / "results"
    project = Project(root, {"studies": "tiny", "results_dir": results})
    project.run()
    return project


@pytest.fixture(scope="module")
def scores(finished: Project) -> pd.DataFrame:
    return read_scores(finished.cell / attack / "scores.csv" for attack in SCORED)


def mean(scores: pd.DataFrame, attack: str, metric: str) -> float:
    rows = scores[(scores["attack"] == attack) & (scores["metric"] == metric)]
    return sum(rows["value"]) / len(rows)


def test_every_score_is_there_and_in_its_range(scores: pd.DataFrame) -> None:
    assert set(scores["attack"]) == set(SCORED)
    for metric, (low, high) in RANGES.items():
        rows = scores[scores["metric"] == metric]
        assert len(rows) == 2 * len(SCORED)
        assert rows["value"].between(low, high).all(), metric
        assert not (rows["status"] == UNAVAILABLE).any()


def test_cpl_finds_the_digits_and_beats_blind(scores: pd.DataFrame) -> None:
    assert mean(scores, CPL, "mse") < 1e-3 < mean(scores, "blind", "mse")
    assert mean(scores, CPL, "ssim") > 0.95 > mean(scores, "blind", "ssim")
    assert mean(scores, CPL, "success_labels") == 1
    assert 1 <= mean(scores, CPL, "iterations") <= 20


def test_the_truth_is_perfect(scores: pd.DataFrame) -> None:
    assert {metric: mean(scores, "truth", metric) for metric in BEST} == BEST


def test_the_grants_stand_in_the_scores(scores: pd.DataFrame) -> None:
    assert set(scores[scores["grants"] != ""]["attack"]) == {"blind"}


def test_a_table_holds_the_means_of_the_scores(finished: Project, scores: pd.DataFrame) -> None:
    table = pd.read_csv(finished.results / "studies/tiny/quick/errors.csv")
    assert len(table) == 4 * len(SCORED)
    assert set(table["count"]) == {2}
    for attack, metric, ours in table[["attack", "metric", "ours"]].to_numpy():
        assert ours == pytest.approx(mean(scores, attack, metric), rel=1e-8)


def test_a_metric_is_scored_with_the_fields_that_a_figure_asks_for(scores: pd.DataFrame) -> None:
    wide = scores[scores["metric"] == "success_content+threshold=0.1"]
    error = scores[scores["metric"] == "mse"]
    keys = ["attack", "victim", "sample"]
    both = wide.merge(error, on=keys, suffixes=("", "_error"))
    assert len(both) == len(error) > 0
    assert (both["value"] == (both["value_error"] < 0.1)).all()


def test_a_grid_holds_every_score_of_its_cells(finished: Project, scores: pd.DataFrame) -> None:
    grid = read_scores([finished.results / "studies/tiny/quick/grids/attacks.csv"])
    order = ["attack", "victim", "metric"]
    pd.testing.assert_frame_equal(
        grid.sort_values(order, ignore_index=True), scores.sort_values(order, ignore_index=True)
    )


def test_a_table_of_models_holds_their_accuracy(finished: Project) -> None:
    table = pd.read_csv(finished.results / "studies/tiny/quick/accuracy.csv")
    for training, ours in table[["training", "ours"]].to_numpy():
        model = finished.results / "artifacts/digits/lenet" / training / "model.h5"
        assert ours == pytest.approx(Model.read(model).test_accuracy[-1])
        assert (model.parent / "scores.csv").exists()
    assert len(table) == 2


def test_a_table_of_broadcast_parameters_holds_their_audits(finished: Project) -> None:
    table = pd.read_csv(finished.results / "studies/tiny/quick/audits.csv")
    assert len(table) == 2 * 2
    for crafting, rows in table.groupby("crafting"):
        folder = finished.cell.parents[2] / crafting
        scores = read_scores([folder / "scores.csv"]).set_index("metric")["value"]
        assert dict(zip(rows["metric"], rows["ours"], strict=True)) == pytest.approx(
            scores[rows["metric"]].to_dict()
        )
        assert (folder / "secret.h5").exists() == (crafting == "fishing")
    worst = table.groupby("crafting")["ours"].max()
    assert worst["honest"] < 1 < worst["fishing"]


def test_the_claim_is_judged(finished: Project) -> None:
    """Two victims are too few for a verdict."""
    verdicts = pd.read_csv(finished.results / "studies/tiny/quick/expectations.csv")
    assert verdicts[["n", "verdict"]].to_numpy().tolist() == [[2, "cannot tell"]]
    assert verdicts["needed"].min() >= 5


def test_all_files_stand_in_the_results_folder_and_none_is_half_made(finished: Project) -> None:
    assert not (finished.root / "results").exists()
    assert not (finished.root / "data").exists()
    assert {path.name for path in finished.results.iterdir()} == {
        *("artifacts", "benchmarks", "logs", "studies")
    }
    assert not list(finished.results.rglob("*.partial"))


def test_every_job_left_a_log_and_a_benchmark(finished: Project) -> None:
    logs, benchmarks = (
        {path.relative_to(finished.results / kind).with_suffix("") for path in found}
        for kind, suffix in [("logs", ".log"), ("benchmarks", ".tsv")]
        for found in [(finished.results / kind).rglob(f"*{suffix}")]
    )
    assert logs == benchmarks
    assert len(logs) == 25


def test_jobs_are_chosen_when_one_has_ended_and_no_more_often(project: Project) -> None:
    datasets = [f"results/artifacts/{name}/dataset.h5" for name in ("digits", "breast_cancer")]
    said = project.run(*datasets, "--verbose", results_dir="results").text
    assert said.count("Ready jobs: ") == len(datasets)


def test_a_second_run_has_nothing_to_do(finished: Project) -> None:
    assert "Nothing to be done" in finished.run().text


def test_an_attack_needs_no_file_but_its_inputs(finished: Project, tmp_path: Path) -> None:
    """Snakemake runs it in a folder that holds these alone, and it finds the same to the byte."""
    targets = [finished.cell / attack / "reconstruction.h5" for attack in (CPL, "blind")]
    words = ["--forceall", "--allowed-rules", "attack", "--rerun-triggers", "mtime"]
    jobs = finished.jobs(*targets, *words)
    for path in {path for job in jobs for path in job.files("input")}:
        copy = tmp_path / "alone" / path.relative_to(finished.results)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    alone = [tmp_path / "alone" / path.relative_to(finished.results) for path in targets]
    finished.run(*alone, *words, results_dir=tmp_path / "alone")
    for path, found in zip(targets, alone, strict=True):
        assert found.read_bytes() == path.read_bytes()


def test_shares_have_the_scores_of_the_whole(
    finished: Project, scores: pd.DataFrame, tmp_path: Path
) -> None:
    attacks = ignore_patterns(*SCORED)
    copytree(finished.results / "artifacts", tmp_path / "artifacts", ignore=attacks)
    cell = tmp_path / "artifacts" / finished.cell.relative_to(finished.results / "artifacts")
    target = cell / GI / "scores.csv"
    words = ["--rerun-triggers", "mtime"]
    finished.run(target, *words, results_dir=tmp_path, shards=2)
    assert {path.name for path in (cell / GI / "shards").iterdir()} == {"1-of-2", "2-of-2"}
    whole = scores[scores["attack"] == GI].reset_index(drop=True)
    gathered = read_scores([target])
    same = ~whole["metric"].isin(OF_THE_MACHINE)
    names = [name for name in whole if name != "value"]
    pd.testing.assert_frame_equal(gathered[names], whole[names])
    np.testing.assert_allclose(gathered["value"][same], whole["value"][same], rtol=1e-3)


def test_the_report_is_one_file_with_verdicts_figures_and_captions(
    finished: Project, tmp_path: Path
) -> None:
    finished.run("--report", tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    text = (tmp_path / "report.html").read_text()
    assert not re.search(r"<(script|link|img|iframe)\s[^>]*(src|href)=[\"']?(https?:)?//", text)
    shown = json.loads(re.findall(r"var results = (\{.*\});", text)[0])
    folder = finished.results / "studies/tiny/quick"
    figures = [f"{name}{'.html' if name in TABLES else '.svg'}" for name in FIGURES]
    files = [*figures, *(f"{name}.csv" for name in FIGURES)]
    files += ["expectations.csv", "expectations.html"]
    assert set(shown) == {str(folder / name) for name in files}
    for path, entry in shown.items():
        content = base64.b64decode(entry["data_uri"].partition("base64,")[2])
        assert content == Path(path).read_bytes()
        assert "of a tiny study." in entry["caption"] or "claims of the paper" in entry["caption"]
    first = json.loads(re.findall(r"var workflow_desc = (\".*\");", text)[0])
    assert f'data-folder="{folder}"' in first
    verdicts = pd.read_csv(folder / "expectations.csv")["verdict"]
    for verdict, number in verdicts.value_counts().items():
        assert first.count(f'<span class="{str(verdict).split()[0]}">') == number
    links = set(re.findall(r'<a href="([^"#]+)"', first))
    assert links
    assert {str(folder / link) for link in links} <= set(shown)


def test_the_report_opens_on_recorded_headlines(finished: Project, tmp_path: Path) -> None:
    folder = finished.results / "studies/tiny/quick"
    run = pd.read_csv(folder / "expectations.csv", dtype=str, keep_default_na=False)
    recorded = run.head(1).assign(verdict="differs", metric="PSNR", study="tiny", scale="small")
    file = finished.root / "docs/results/tiny/headlines.csv"
    file.parent.mkdir(parents=True)
    try:
        recorded.to_csv(file, index=False)
        assert {job.rule for job in finished.jobs()} == {"judge", "all"}
        finished.run()
        finished.run("--report", tmp_path / "report.html")
    finally:
        rmtree(file.parents[1])
        finished.run()
    text = (tmp_path / "report.html").read_text()
    first = json.loads(re.findall(r"var workflow_desc = (\".*\");", text)[0])
    opening, _, rest = first.partition("<h2>All claims in this run</h2>")
    assert opening.count('<span class="differs">differs</span>') == 1
    assert f"<td>{run['verdict'][0]}, " in opening
    assert '<span class="differs">' not in rest
    assert not re.search("[0-9] papers?", first)


@pytest.fixture
def hostile_report(finished: Project, tmp_path: Path) -> str:
    """The report of the tiny study with titles and captions that are code."""

    def edit(text: str) -> str:
        study = yaml.safe_load(text)
        study["title"] = ALL
        for figure in study["figures"].values():
            figure.update(title=ALL, caption=ALL, reproduces=ALL)
        return yaml.safe_dump(study)

    with finished.edited("studies/tiny.yaml", edit=edit):
        finished.run("--report", tmp_path / "report.html")
    return (tmp_path / "report.html").read_text()


def test_names_are_text_in_the_report(hostile_report: str) -> None:
    written = dict(re.findall(r"    var (\w+) = ([{\"].*);\n", hostile_report))
    assert "<" not in written["categories"]
    results, first = json.loads(written["results"]), Page(json.loads(written["workflow_desc"]))
    (category,) = json.loads(written["categories"])
    assert category == to_report(f"1. TINY: {ALL}")
    assert category in first.text
    assert ("a", "onclick", "app.showCategory(this.dataset.study)") in first.code
    assert {code for tag, _, code in first.code if tag != "div"} == {
        "app.showCategory(this.dataset.study)"
    }
    assert "<" not in json.dumps([[e["labels"], e["job_properties"]] for e in results.values()])
    captions = [Page(entry["caption"]) for entry in results.values()]
    assert all(caption.code == [] for caption in captions)
    assert sum(to_report(ALL) in caption.text for caption in captions) == 2 * len(FIGURES)


@pytest.mark.slow
def test_names_are_text_in_the_report_in_a_browser(hostile_report: str) -> None:
    """The link to the study's figures opens them."""
    page = shown(
        hostile_report,
        "document.querySelector('[data-study]').click();"
        "setTimeout(() => { document.body.dataset.opened = app.state.category }, 200)",
    )
    assert page.attributes["data-opened"] == to_report(f"1. TINY: {ALL}")


def name(job: Job) -> str:
    """The rule and the attack, figure, grid, model or crafting it is for."""
    rule = job.rule.removesuffix("_table")
    kinds = [LEVELS[rule]] if rule in LEVELS else ["attack", "figure", "grid"]
    return " ".join([rule, *(job.wildcards[kind] for kind in kinds if kind in job.wildcards)])


def after(project: Project, *files: str, added: str = "\nEDITED = True\n") -> set[str]:
    """The jobs of a run after a line of code, or other text, is added to source files."""
    with project.edited(*files, edit=lambda text: text + added):
        jobs = [name(job) for job in project.jobs()]
    assert max(Counter(jobs).values(), default=1) == 1
    return set(jobs)


@pytest.mark.parametrize(
    ("file", "again"),
    [
        ("gleak/attacks/dlg.py", {f"attack {CPL}", f"score {CPL}", *STUDY}),
        (
            "gleak/attacks/matching/engine.py",
            {f"{rule} {attack}" for rule in ("attack", "score") for attack in (CPL, GI)} | STUDY,
        ),
        ("gleak/metrics/reconstruction/pixel_similarity.py", {*SCORES, "score_truth", *STUDY}),
        ("gleak/metrics/accuracy.py", {*MODEL_SCORES, *MODELS}),
        ("gleak/metrics/audits/single_weight_paths.py", {*AUDITS, *BROADCASTS}),
        ("gleak/crafting/fishing.py", {*FISHED, *BROADCASTS}),
        (
            "gleak/training/federated.py",
            {f"train_model {FL}", f"score_model {FL}", *MODELS},
        ),
        ("gleak/figures/kinds/bar_and_line.py", {"draw budget", "all"}),
        ("gleak/figures/judge.py", {"judge", "all"}),
    ],
)
def test_an_edit_reruns_what_it_can_change(finished: Project, file: str, again: set[str]) -> None:
    assert after(finished, file) == again


def test_what_no_job_of_a_study_needs_reruns_nothing(finished: Project) -> None:
    assert (
        after(finished, "gleak/cli/main.py", "gleak/attacks/spear.py", "gleak/data/download.py")
        == set()
    )


def test_a_table_of_attacks_is_drawn_from_the_code_of_these_alone(project: Project) -> None:
    project.run(studies="registry")
    folder = project.results / "studies/registry/quick"
    assert {path.name for path in folder.iterdir()} == {
        f"compared{suffix}" for suffix in (".html", ".csv", ".tex")
    }
    with project.edited(
        "gleak/metrics/reconstruction/pixel_similarity.py",
        edit=lambda text: text + "\nEDITED = True\n",
    ):
        assert project.jobs(studies="registry") == []
    with project.edited("gleak/attacks/dlg.py", edit=lambda text: text + "\nEDITED = True\n"):
        assert {name(job) for job in project.jobs(studies="registry")} == {"draw compared", "all"}


def test_comments_docstrings_and_layout_rerun_nothing(finished: Project) -> None:
    files = [
        "gleak/attacks/dlg.py",
        "gleak/metrics/reconstruction/pixel_similarity.py",
        "gleak/data/bundled.py",
    ]
    assert after(finished, *files, added="\n\n# A comment.\n") == set()
    with finished.edited(*files, edit=lambda text: text.replace('"""', '"""Edited: ', 1)):
        assert finished.jobs() == []


def test_a_changed_default_reruns_the_cells_that_have_it(finished: Project) -> None:
    def edit(text: str) -> str:
        return text.replace('parameter(20, "fresh starts', 'parameter(21, "fresh starts')

    with finished.edited("gleak/attacks/matching_attack.py", edit=edit):
        again = {name(job) for job in finished.jobs()}
    both = {f"{rule} {attack}" for rule in ("attack", "score") for attack in (CPL, GI)}
    assert again == both | STUDY


def test_weights_that_were_downloaded_since_make_scores_again(
    finished: Project, random_backbone: Path, tmp_path: Path
) -> None:
    """Not before they are those that are expected, which a plug-in says of random ones."""
    digest = sha256(random_backbone.read_bytes()).hexdigest()
    (tmp_path / "published.py").write_text(
        "from gleak.runtime.hub_weights import DIGESTS\n"
        f"DIGESTS[{random_backbone.name!r}] = ({digest!r},)\n"
    )
    home = {"TORCH_HOME": str(random_backbone.parents[2])}
    assert replace(finished, environment=home).jobs() == []
    told = replace(
        finished, environment={**home, "GLEAK_PLUGINS": "published"}, first_on_path=[tmp_path]
    )
    assert {name(job) for job in told.jobs()} == SCORES | STUDY | {"score_truth"}


def test_another_seed_runs_everything_again(finished: Project) -> None:
    again = {name(job) for job in finished.jobs(seed=1)}
    assert again >= {"prepare_dataset", f"train_model {FL}", "simulate_clients", "attack blind"}
    assert again >= SCORES | STUDY | MODEL_SCORES | MODELS | AUDITS | FISHED | BROADCASTS
