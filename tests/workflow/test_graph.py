"""The graph of every study at every scale: it can be built, and no attack can reach the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gleak.core.settings import SCALES
from gleak.experiments.cell import KNOWLEDGE, LEVELS, Cell, Paths
from gleak.experiments.study import load_study
from gleak.knowledge.base import Pretraining

if TYPE_CHECKING:
    from tests.project import Job, Project

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
OWN = Path(__file__).parent / "studies" / "tuned.yaml"
ALL = {path.stem: path for path in (*STUDIES, OWN)}
SEARCHING = [path for path in ALL.values() if load_study(path).searches]
CELL = "results/artifacts/digits/lenet/untrained/honest/fedsgd/none"
PATHS = Paths(Path("results"))
Graph = Callable[[str, str], "list[Job]"]

each_study = pytest.mark.parametrize("study", [path.stem for path in STUDIES])
each_scale = pytest.mark.parametrize("scale", SCALES)


def check_attack(job: Job) -> None:
    """An attack reads the update, the broadcast parameters and what its spec names; nothing else.

    What it brings was trained on samples that are none of the victims'.
    """
    cell = Cell.from_path({level: job.wildcards[level] for level in LEVELS})
    inputs = job.files("input")
    assert not {path.name for path in inputs} & {"private.h5", "dataset.h5"}
    granted = {path.name for path in inputs if path.parent.name == "granted"}
    assert granted == {f"{grant}.h5" for grant in cell.attack.grants}
    brought = {path for path in inputs if path.name == KNOWLEDGE}
    assert brought == {PATHS.knowledge(pretraining) for pretraining in cell.pretrainings}
    for pretraining in cell.pretrainings:
        assert cell.client.split == "test" or pretraining.dataset.name != cell.dataset.name
    others = {path.name for path in {*inputs} - brought if path.parent.name != "granted"}
    broadcast = "model.h5" if cell.crafting.broadcasts_model else "parameters.h5"
    assert others == {"update.h5", broadcast} | ({"secret.h5"} if cell.attack.crafting else set())


def check_training(job: Job) -> None:
    """What attackers bring is trained on one public dataset, and nothing of any victim."""
    (dataset,) = job.files("input")
    assert dataset == PATHS.folder({"dataset": job.wildcards["dataset"]}) / "dataset.h5"
    Pretraining.from_path(job.wildcards)


def check_secret(job: Job) -> None:
    """What a server keeps to itself is there for attacks made for its crafting, or their search."""
    if "secret.h5" not in {path.name for path in job.files("input")}:
        return
    if job.attacks:
        cell = Cell.from_path({level: job.wildcards[level] for level in LEVELS})
    else:
        assert job.rule == "search"
        study = load_study(ALL[job.wildcards["study"]])
        cell = study.search(job.wildcards["search"], job.wildcards["scale"]).cell
    assert cell.attack.crafting == cell.crafting.name


@each_study
@each_scale
def test_every_study_has_a_graph_and_no_attack_in_it_reaches_the_truth(
    graph: Graph, study: str, scale: str
) -> None:
    jobs = graph(study, scale)
    attacks = [job for job in jobs if job.attacks]
    assert attacks
    for job in attacks:
        check_attack(job)
    for job in jobs:
        check_secret(job)
        if job.rule == "train_knowledge":
            check_training(job)
    drawn = {path for job in jobs for path in job.files("output") if path.suffix == ".svg"}
    (everything,) = (job for job in jobs if job.rule == "all")
    assert drawn
    assert drawn <= {*everything.files("input")}


def check_search(job: Job) -> None:
    """A search reads an attack's inputs and the truth, all of victims from the train split."""
    inputs = job.files("input")
    folders = {path.parent for path in inputs if path.name in ("update.h5", "private.h5")}
    (folder,) = folders
    texts = dict(zip(LEVELS, folder.parts[folder.parts.index("artifacts") + 1 :], strict=False))
    assert Cell.from_path(texts).client.split == "train"
    others = {path.name for path in inputs if path.parent.name != "granted"}
    others -= {"secret.h5", KNOWLEDGE}
    assert others in ({"update.h5", "private.h5", f"{kind}.h5"} for kind in ("model", "parameters"))
    assert {path.parent.parent for path in inputs if path.parent.name == "granted"} <= folders


@pytest.mark.parametrize("study", [path.stem for path in SEARCHING])
@each_scale
def test_searches_see_no_victim_of_which_results_are_reported(
    planned: Project, graph: Graph, study: str, scale: str
) -> None:
    jobs = planned.jobs("searches", studies=study, scale=scale)
    searches = [job for job in jobs if job.rule == "search"]
    assert {job.wildcards["search"] for job in searches} == {*load_study(ALL[study]).searches}
    for job in searches:
        check_search(job)
        check_secret(job)
    assert not [job for job in jobs if job.attacks]
    assert not [job for job in graph(study, scale) if job.rule == "search"]
    reported = {
        path
        for job in graph(study, scale)
        if job.rule in ("score", "score_truth")
        for path in job.files("input")
        if path.name == "private.h5"
    }
    assert not reported & {path for job in searches for path in job.files("input")}


@each_study
def test_every_job_has_a_log_and_a_benchmark_of_its_own(graph: Graph, study: str) -> None:
    jobs = [job for job in graph(study, "quick") if job.rule != "all"]
    for kind in ("log", "benchmark"):
        files = [path for job in jobs for path in job.files(kind)]
        assert len(set(files)) == len(jobs)


def test_no_share_of_a_cell_reaches_the_truth(planned: Project) -> None:
    jobs = planned.jobs(f"{CELL}/cpl/scores.csv", f"{CELL}/blind/scores.csv", shards=3)
    attacks = [job for job in jobs if job.rule == "attack_shard"]
    assert len(attacks) == 6
    for job in attacks:
        check_attack(job)


def test_no_client_defence_or_audit_sees_the_secret_of_the_server(planned: Project) -> None:
    sent = CELL.replace("honest/fedsgd/none", "fishing/fedsgd/gaussian")
    attacks = ["fishing", "invertgrad", "blind"]
    jobs = planned.jobs(*(f"{sent}/{attack}/scores.csv" for attack in attacks))
    readers = [job for job in jobs if "secret.h5" in {path.name for path in job.files("input")}]
    assert [job.wildcards["attack"] for job in readers] == ["fishing"]
    for job in jobs:
        check_secret(job)


@pytest.mark.parametrize(
    ("crafting", "broadcast"), [("honest", "model.h5"), ("fishing", "parameters.h5")]
)
def test_an_audit_sees_what_a_client_sees(planned: Project, crafting: str, broadcast: str) -> None:
    folder = Path(CELL).parents[2] / crafting
    jobs = planned.jobs(folder / "scores.csv")
    (audit,) = (job for job in jobs if job.rule == "score_parameters")
    assert {path.name for path in audit.files("input")} == {"dataset.h5", broadcast}
    assert not [job for job in jobs if job.rule == "simulate_clients"]


def test_what_is_granted_is_what_the_spec_asks_for(planned: Project) -> None:
    expected = {
        "cpl": [],
        "cpl+labels=known": [Path(CELL) / "granted/labels.h5"],
        "blind": [Path(CELL) / "granted/mean_input.h5"],
    }
    jobs = planned.jobs(*(f"{CELL}/{attack}/reconstruction.h5" for attack in expected))
    inputs = {job.wildcards["attack"]: job.files("input") for job in jobs if job.attacks}
    assert expected == {
        attack: [path for path in files if path.parent.name == "granted"]
        for attack, files in inputs.items()
    }


def test_all_studies_are_planned_together(planned: Project) -> None:
    """Figures of two studies may have the same name and yet write different files."""
    jobs = planned.jobs(studies=f"[{','.join(path.stem for path in STUDIES)}]")
    drawn = {
        (job.wildcards["study"], job.wildcards["figure"], job.rule)
        for job in jobs
        if job.rule in ("draw", "draw_table")
    }
    kinds = {False: "draw", True: "draw_table"}
    assert drawn == {
        (path.stem, figure, kinds[".tex" in spec.suffixes])
        for path in STUDIES
        for figure, spec in load_study(path).figures.items()
    }
    rules = {}
    for _, figure, rule in drawn:
        rules.setdefault(figure, set()).add(rule)
    assert max(map(len, rules.values())) == 2, "no name is of two kinds: this test shows nothing"
