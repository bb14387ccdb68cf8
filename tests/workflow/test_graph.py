"""The graph of every study at every scale: it can be built, and no attack can reach the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gleak.core.registry import parse_at
from gleak.core.settings import SCALES, Settings
from gleak.knowledge.base import Pretraining
from gleak.studies.cell import KNOWLEDGE, LEVELS, Cell, Paths
from gleak.studies.estimate import TOGETHER, plan_study
from gleak.studies.study import load_study

if TYPE_CHECKING:
    from tests.project import Job, Project

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
OWN = Path(__file__).parent / "studies" / "tuned.yaml"
ALL = {path.stem: path for path in (*STUDIES, OWN)}
SEARCHING = [path for path in ALL.values() if load_study(path).searches]
CELL = "results/artifacts/digits/lenet/untrained/honest/fedsgd/none"
PATHS = Paths(Path("results"))
Graph = Callable[[str], "list[Job]"]
EVERY = f"[{','.join(ALL)}]"

each_scale = pytest.mark.parametrize("scale", SCALES)


@pytest.fixture(scope="module")
def graph(planned: Project) -> Graph:
    """All jobs of all studies at a scale."""
    return cache(lambda scale: planned.jobs(studies=EVERY, scale=scale))


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


def check_membership(job: Job) -> None:
    """It reads the update, the broadcast parameters and candidates, not which took part."""
    cell = Cell.from_path({level: job.wildcards[level] for level in LEVELS})
    broadcast = "model.h5" if cell.crafting.broadcasts_model else "parameters.h5"
    inputs = job.files("input")
    assert {path.name for path in inputs} == {"update.h5", broadcast, "candidates.h5"}
    (granted,) = (path for path in inputs if path.name == "candidates.h5")
    assert granted.parent.parent == PATHS.folder(cell.upto("defense")) / "candidates" / str(
        cell.attack.candidates
    )


def check_audit(job: Job) -> None:
    """It reads samples and parameters for canaries that are samples, and no client's update."""
    attack = parse_at("attack", job.wildcards["attack"])
    names = {path.name for path in job.files("input")}
    assert names <= {"dataset.h5", "model.h5", "parameters.h5"}
    assert bool(names) == attack.takes_samples


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


def check_graph(jobs: list[Job], studies: set[str]) -> None:
    """What these studies need is made, and no attack in it reaches the truth."""
    asking = ("infer_members", "audit_privacy")
    assert any(job.attacks or job.rule in asking for job in jobs)
    for job in jobs:
        if job.attacks:
            check_attack(job)
        check_secret(job)
        if job.rule == "train_knowledge":
            check_training(job)
        if job.rule == "infer_members":
            check_membership(job)
        if job.rule == "audit_privacy":
            check_audit(job)
    drawing = [job for job in jobs if job.rule in ("draw", "draw_table")]
    assert {job.wildcards["study"] for job in drawing} == studies
    drawn = {path for job in drawing for path in job.files("output")}
    (everything,) = (job for job in jobs if job.rule == "all")
    assert drawn
    assert drawn <= {*everything.files("input")}


@each_scale
def test_studies_have_a_graph_and_no_attack_in_it_reaches_the_truth(
    graph: Graph, scale: str
) -> None:
    drawn = {name for name, path in ALL.items() if load_study(path, [scale]).at(scale).figures}
    check_graph(graph(scale), drawn)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "scale"), [(path.stem, s) for path in STUDIES for s in load_study(path).scales]
)
def test_each_study_has_a_graph_of_its_own(planned: Project, study: str, scale: str) -> None:
    check_graph(planned.jobs(studies=study, scale=scale), {study})


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


@each_scale
def test_searches_see_no_victim_of_which_results_are_reported(
    planned: Project, graph: Graph, scale: str
) -> None:
    studies = f"[{','.join(path.stem for path in SEARCHING)}]"
    jobs = planned.jobs("searches", studies=studies, scale=scale)
    searches = [job for job in jobs if job.rule == "search"]
    assert {(job.wildcards["study"], job.wildcards["search"]) for job in searches} == {
        (path.stem, search) for path in SEARCHING for search in load_study(path).searches
    }
    for job in searches:
        check_search(job)
        check_secret(job)
    assert not [job for job in jobs if job.attacks]
    assert not [job for job in graph(scale) if job.rule == "search"]
    reported = {
        path
        for job in graph(scale)
        if job.rule in ("score", "score_truth")
        for path in job.files("input")
        if path.name == "private.h5"
    }
    assert not reported & {path for job in searches for path in job.files("input")}


def test_every_job_has_a_log_and_a_benchmark_of_its_own(graph: Graph) -> None:
    jobs = [job for job in graph("quick") if job.rule != "all"]
    for kind in ("log", "benchmark"):
        files = [path for job in jobs for path in job.files(kind)]
        assert len(set(files)) == len(jobs)


def test_no_share_of_a_cell_reaches_the_truth(planned: Project) -> None:
    jobs = planned.jobs(f"{CELL}/cpl/scores.csv", f"{CELL}/blind/scores.csv", shards=3)
    attacks = [job for job in jobs if job.rule == "attack_shard"]
    assert len(attacks) == 6
    for job in attacks:
        check_attack(job)


def test_attacks_read_the_secret_and_the_grants_that_their_specs_name_and_others_none(
    planned: Project,
) -> None:
    granted = {
        "cpl": [],
        "cpl+labels=known": ["labels"],
        "blind": ["mean_input"],
        "gradinversion": [],
        "gradinversion+statistics=granted": ["batch_norm_statistics"],
    }
    sent = CELL.replace("honest/fedsgd/none", "fishing/fedsgd/gaussian")
    crafted = [f"{sent}/{attack}/scores.csv" for attack in ("fishing", "invertgrad", "blind")]
    normalised = CELL.replace("/lenet/", "/resnet20/")
    honest = [f"{normalised}/{attack}/reconstruction.h5" for attack in granted]
    jobs = planned.jobs(*crafted, *honest)
    readers = [job for job in jobs if "secret.h5" in {path.name for path in job.files("input")}]
    assert [job.wildcards["attack"] for job in readers] == ["fishing"]
    for job in jobs:
        check_secret(job)
    for job in jobs:
        if job.attacks and job.wildcards["crafting"] == "honest":
            found = [path.stem for path in job.files("input") if path.parent.name == "granted"]
            assert found == granted.pop(job.wildcards["attack"])
    assert not granted


def test_an_audit_sees_what_a_client_sees(planned: Project) -> None:
    folder = Path(CELL).parents[2]
    jobs = planned.jobs(*(folder / crafting / "scores.csv" for crafting in ("honest", "fishing")))
    seen = {
        job.wildcards["crafting"]: {path.name for path in job.files("input")}
        for job in jobs
        if job.rule == "score_parameters"
    }
    assert seen == {
        "honest": {"dataset.h5", "model.h5"},
        "fishing": {"dataset.h5", "parameters.h5"},
    }
    assert not [job for job in jobs if job.rule == "simulate_clients"]


def test_figures_of_all_studies_are_planned_together(graph: Graph) -> None:
    """Figures of two studies may have the same name and yet write different files."""
    drawn = {
        (job.wildcards["study"], job.wildcards["figure"], job.rule)
        for job in graph("quick")
        if job.rule in ("draw", "draw_table")
    }
    kinds = {False: "draw", True: "draw_table"}
    assert drawn == {
        (path.stem, figure, kinds[".tex" in spec.suffixes])
        for path in ALL.values()
        for figure, spec in load_study(path).figures.items()
    }
    rules = {}
    for _, figure, rule in drawn:
        rules.setdefault(figure, set()).add(rule)
    assert max(map(len, rules.values())) == 2, "no name is of two kinds: this test shows nothing"


@pytest.mark.parametrize("shards", [1, 3])
def test_gleak_plans_the_same_jobs(planned: Project, shards: int) -> None:
    jobs = planned.jobs(studies="cpl", shards=shards)
    numbers = Counter(job.rule.removesuffix("_table") for job in jobs if job.rule != "all")
    config = Settings.read({"studies": ["cpl"], "results_dir": planned.results, "shards": shards})
    plan = plan_study(load_study(ALL["cpl"]), config)[TOGETHER]
    assert Counter(job.rule for job in plan) == numbers
