from __future__ import annotations

from collections import ChainMap, Counter
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gleak.attacks.matching.chunks import CPU_BYTES
from gleak.core.registry import load, parse
from gleak.core.settings import Settings
from gleak.crafting.base import CraftingSpec
from gleak.knowledge.base import Pretraining, TrainedSpec
from gleak.metrics.audits.base import REACH_SAMPLES
from gleak.metrics.base import metrics_of
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.estimate import (
    ASSUMED_CLASSES,
    ASSUMED_SAMPLES,
    CALL_SECONDS,
    GPU_BYTES,
    GPU_RATE,
    RATE,
    TOGETHER,
    WEIGHT_WORK,
    Job,
    Plan,
    attacked_cell,
    describe_assumptions,
    describe_jobs,
    describe_searches,
    gigabytes,
    gpu_hours,
    gpu_quarters,
    hours,
    job_megabytes,
    jobs,
    plan_study,
    remaining,
    show,
    update_bytes,
)
from gleak.studies.machine import START_SECONDS, Machine, Speed
from gleak.studies.stage_files import Made, Shard, StudyPart, files_in, scores_of
from gleak.studies.stages import STAGES
from gleak.studies.study import load_study

REPOSITORY = Path(__file__).parents[2]
MACHINE = Machine("fork")
START = START_SECONDS["fork"]
LENET = "photos/lenet/untrained/honest/fedsgd+victims=3+batch_size=2/none/cpl"


class Turned(CraftingSpec):
    """A server that broadcasts something of its own."""

    name: ClassVar[str] = "turned"

    def craft_network(
        self, network: nn.Module, shape: tuple[int, ...], classes: int, seed: int
    ) -> dict[str, np.ndarray]:
        return {}


def cell(text: str = LENET, **changes: str) -> Cell:
    return Cell.parse({**dict(zip(LEVELS, text.split("/"), strict=True)), **changes})


def plan(*cells: Cell, shards: int = 1, results: Path = Path("nowhere")) -> Plan:
    return jobs(map(scores_of, cells), settings(results, shards=shards))


def only(found: Plan, rule: str) -> Any:
    (job,) = (job for job in found if job.rule == rule)
    return job


def settings(results: Path, **changes: Any) -> Settings:
    return Settings.read({"studies": ["cpl"], "results_dir": results, **changes})


def rules(jobs: Plan) -> Counter[str]:
    return Counter(job.rule for job in jobs)


def test_a_figure_without_a_grid_costs_one_job(tmp_path: Path):
    figure = {"kind": "attacks", "attacks": "dlg"}
    content = {"title": "t", "paper": "p", "grids": {}, "figures": {"compared": figure}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    found = plan_study(load_study(tmp_path / "study.yaml"), settings(tmp_path))
    assert {name: rules(plan) for name, plan in found.items()} == {TOGETHER: {"draw": 1}}


def test_a_figure_of_losses_has_knowledge_trained(tmp_path: Path):
    cheap = {"knowledge": {"dataset": "digits", "spec": "codec+size=64+steps=3"}}
    trained = [{"dataset": "photos", "spec": f"codec+size={size}"} for size in (64, 128)]
    figure = {"kind": "losses", "knowledge": trained, "quick": cheap}
    content = {"title": "t", "paper": "p", "grids": {}, "figures": {"losses": figure}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    study = load_study(tmp_path / "study.yaml")
    for scale, trainings in (("quick", 1), ("paper", 2)):
        found = plan_study(study, settings(tmp_path, scale=scale))[TOGETHER]
        assert rules(found) == {"prepare_dataset": 1, "train_knowledge": trainings, "draw": 1}


@pytest.mark.parametrize("name", load("knowledge"))
def test_any_knowledge_is_estimated_and_one_that_is_read_from_a_file_takes_no_batches(name: str):
    training = Pretraining.parse("imagenet_sample+size=128", name)
    wanted = Made("train_knowledge", "knowledge", training)
    job = only(jobs([wanted], settings(Path("nowhere"))), "train_knowledge")
    assert job.bytes > 0
    assert (job.calls > 0) == (job.work > 0) == isinstance(training.knowledge, TrainedSpec)


def test_shared_prefixes_count_once():
    attacks = [cell(attack=attack) for attack in ("cpl", "dlg", "blind")]
    found = plan(*attacks, cell(defense="gaussian"))
    assert rules(found) == {
        "prepare_dataset": 1,
        "train_model": 1,
        "simulate_clients": 2,
        "attack": 4,
        "score": 4,
    }


LEVEL = st.sampled_from([{"dataset": "digits"}, {"defense": "topk"}, {"attack": "dlg"}])


@given(st.lists(st.lists(LEVEL), min_size=1), st.integers(1, 5))
def test_no_two_jobs_make_one_file(changes: list[list[dict[str, str]]], shards: int):
    levels = {str(cell(**dict(ChainMap(*some)))) for some in changes}
    found = plan(*map(cell, levels), shards=shards)
    assert len({job.output for job in found}) == len(found)
    assert rules(found)["score"] == len(levels)


def test_shards_split_the_work_and_none_is_empty():
    whole, split = plan(cell()), plan(cell(), shards=8)
    shares = [job for job in split if job.rule == "attack_shard"]
    assert len(shares) == cell().client.victims
    assert sum(job.work for job in shares) == pytest.approx(only(whole, "attack").work)
    assert only(split, "gather_shards").output == only(whole, "attack").output


MEASURED = {
    "digits/lenet/fedsgd+victims=8/invertgrad": 4.8,
    "photos/lenet/fedsgd+victims=16+batch_size=4/invertgrad": 33.2,
    "photos/lenet/fedavg+victims=4+batch_size=4+local_steps=3/"
    "invertgrad+client_model=unrolled": 30.6,
    "photos/resnet20/fedsgd+victims=1/invertgrad": 28.1,
    "photos/resnet20/fedsgd+victims=4+batch_size=4/invertgrad": 205,
    "photos/vgg_small/fedsgd+victims=1+batch_size=4/invertgrad": 25.7,
    "photos/fc2/fedsgd+victims=8+batch_size=4/invertgrad": 9.0,
    "photos/resnet18/fedsgd+victims=1/invertgrad": 214,
}
"""Milliseconds of an evaluation, measured on one core."""


@pytest.mark.parametrize("text", MEASURED)
def test_evaluations_take_as_long_as_measured_within_a_factor_of_three(text: str):
    dataset, model, client, attack = text.split("/")
    found = cell(dataset=dataset, model=model, client=client, attack=attack)
    job = only(plan(found), "attack")
    seconds = (job.seconds(MACHINE) - START) / found.attack.cost().evaluations
    assert 1 / 3 < 1000 * seconds / MEASURED[text] < 3


RUNS = {"agic": 299, "cpa": 108, "cpl": 224, "defences": 115, "mkor": 217, "rog": 439}
"""CPU-seconds of all jobs of a study at the quick scale, forked, by Snakemake's benchmark files.

Snakemake samples CPU time, and misses jobs of less than a second or so: they count as 0.1 s.
"""


@pytest.mark.parametrize("name", RUNS)
def test_studies_take_as_long_as_measured_within_a_factor_of_two(name: str, tmp_path: Path):
    study = load_study(REPOSITORY / "studies" / f"{name}.yaml")
    found = 3600 * hours(plan_study(study, settings(tmp_path))[TOGETHER], MACHINE)
    assert 1 / 2 < found / RUNS[name] < 2


def test_an_attack_costs_as_documented():
    found = cell()
    forward = found.model.multiply_adds(found.dataset.shape, found.dataset.classes)
    weights = found.model.parameters(found.dataset.shape, found.dataset.classes)
    evaluations = found.attack.cost().evaluations
    seconds = 3 * evaluations * (2 * 12 * forward / RATE + weights * WEIGHT_WORK / RATE)
    seconds += START + evaluations * CALL_SECONDS
    assert only(plan(found), "attack").seconds(MACHINE) == pytest.approx(seconds)
    assert only(plan(cell(attack="blind")), "attack").seconds(MACHINE) == START


def test_attacks_of_one_sample_and_of_first_derivatives_cost_less():
    client = "fedsgd+victims=1+batch_size=8+loss=nll_raw"
    fishing = cell(crafting="fishing", client=client, attack="fishing+iterations=10")
    single = cell(client="fedsgd+victims=1+loss=nll_raw", attack="invertgrad+iterations=10")
    assert only(plan(fishing), "attack").work == only(plan(single), "attack").work
    one, two = (
        only(plan(cell(client=f"fedsgd+victims=1+batch_size={n}", attack="fi")), "attack").work
        for n in (1, 2)
    )
    forward = cell().model.multiply_adds((3, 32, 32), 10)
    assert two - one == pytest.approx(3 * forward * parse("attack", "fi").cost().evaluations)


def test_training_costs_as_documented():
    found = cell(training="central+epochs=5")
    forward = found.model.multiply_adds(found.dataset.shape, found.dataset.classes)
    work = 5 * found.dataset.sizes["train"] * 3 * forward
    assert only(plan(found), "train_model").work == work
    rounds = cell(training="federated+clients=10+rounds=7+local_steps=3")
    work = 7 * 3 * 32 * 3 * forward
    assert only(plan(rounds), "train_model").work == pytest.approx(work)
    assert only(plan(cell()), "train_model").work == 0


def test_a_model_is_scored_without_an_attack():
    whole, trained = plan(cell()), plan(cell().upto("training"))
    assert rules(trained) == {"prepare_dataset": 1, "train_model": 1, "score_model": 1}
    assert only(trained, "score_model").output.parent == only(trained, "train_model").output.parent
    assert len(whole & trained) == 2
    assert "0 of 2" in show({"both": whole | trained}, "grid", MACHINE)


def test_what_is_broadcast_is_audited_without_clients():
    honest = plan(cell().upto("crafting"))
    assert rules(honest) == {"prepare_dataset": 1, "train_model": 1, "score_parameters": 1}
    found = Cell({**cell().upto("training").specs, "crafting": Turned()})
    crafted = plan(found)
    assert set(rules(crafted)) - set(rules(honest)) == {"craft_parameters"}
    audit, craft = only(crafted, "score_parameters"), only(crafted, "craft_parameters")
    assert audit.output.parent == craft.output.parent != only(honest, audit.rule).output.parent
    assert craft.bytes == only(crafted, "train_model").bytes
    forward = cell().model.multiply_adds(cell().dataset.shape, cell().dataset.classes)
    samples = max(getattr(metric, "samples", 0) for metric in metrics_of("crafting"))
    assert audit.work == (2 * samples + REACH_SAMPLES) * 3 * forward > 0


def test_sizes_on_disk():
    found = plan(cell())
    parameters = cell().model.parameters((3, 32, 32), 10)
    assert only(found, "prepare_dataset").bytes == 2 * 640 * 3 * 32 * 32
    assert only(found, "train_model").bytes == 4 * parameters
    assert only(found, "simulate_clients").bytes == 4 * (
        3 * parameters + (2 * 6 + 65) * 3 * 32 * 32
    )
    assert only(found, "attack").bytes == 4 * 6 * 3 * 32 * 32
    assert gigabytes(found) == pytest.approx(sum(job.bytes for job in found) / 1e9)


def test_local_steps_cost_the_client_and_who_repeats_them():
    """The client twice, with the whole batch's gradient beside them: its drift is measured."""
    one, five, unrolled = (
        plan(cell(client=client, attack=attack))
        for client, attack in (
            ("fedavg+victims=3+batch_size=2", "cpl"),
            ("fedavg+victims=3+batch_size=2+local_steps=5", "cpl"),
            ("fedavg+victims=3+batch_size=2+local_steps=5", "cpl+client_model=unrolled"),
        )
    )
    work = {
        rule: [only(found, rule).work for found in (one, five, unrolled)]
        for rule in ("simulate_clients", "attack")
    }
    assert work["simulate_clients"] == [work["simulate_clients"][0] * n for n in (1, 11, 11)]
    assert work["attack"] == [work["attack"][0] * n for n in (1, 1, 5)]


@pytest.mark.usefixtures("bringing")
def test_knowledge_is_trained_once_for_all_that_bring_it():
    texts = [f"bringing+codec=codec~steps={steps}~size=64" for steps in (10, 30)]
    own = plan(*(cell(defense=noise, attack=texts[0]) for noise in ("none", "gaussian")))
    assert rules(own)["train_knowledge"] == rules(own)["prepare_dataset"] == 1
    both = plan(*(cell(attack=text) for text in texts))
    short, long = sorted(job.work for job in both if job.rule == "train_knowledge")
    spec = parse("knowledge", "codec+size=64")
    assert short == 10 * spec.batch_size * 3 * spec.multiply_adds((3, 32, 32), 10)
    assert long == 3 * short
    other = "bringing+codec=codec~public=photos~size=64"
    assert rules(plan(cell(dataset="cifar10", attack=other)))["prepare_dataset"] == 2


def test_what_an_attack_is_scored_by_is_trained_too():
    bare, judged = (plan(cell(attack=text)) for text in ("rog", "rog+tagger=tagger~steps=10"))
    assert "train_knowledge" not in rules(bare)
    assert rules(judged)["train_knowledge"] == 1
    assert only(judged, "attack").work == only(bare, "attack").work


def test_what_only_files_tell_is_assumed():
    found = cell(dataset="folder", training="central+epochs=1")
    assert found.dataset.classes is None
    forward = found.model.multiply_adds(found.dataset.shape, ASSUMED_CLASSES)
    assert only(plan(found), "train_model").work == ASSUMED_SAMPLES * 3 * forward


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(load("model")) - {"custom"}))
@pytest.mark.parametrize(("shape", "classes"), [((1, 16, 16), 10), ((3, 33, 20), 7)])
def test_parameters_are_those_of_the_network(name: str, shape: tuple[int, ...], classes: int):
    model = parse("model", name)
    network = model.build(shape, classes)
    counted = sum(parameter.numel() for parameter in network.parameters())
    assert model.parameters(shape, classes) == counted


def test_what_is_there_is_done(tmp_path: Path):
    study = load_study(REPOSITORY / "studies" / "cpl.yaml")
    grid = study.grid("attacks", "quick")
    finished = plan(*grid.cells[:3], results=tmp_path)
    for job in finished:
        job.output.parent.mkdir(parents=True, exist_ok=True)
        job.output.touch()
    found = plan_study(study, settings(tmp_path))["attacks"]
    assert found - remaining(found) == finished
    left = hours(found, MACHINE) - hours(finished, MACHINE)
    assert hours(remaining(found), MACHINE) == pytest.approx(left)
    assert f"3 of {len(grid.cells)}" in show({"attacks": found}, "grid", MACHINE)


def test_gpu_hours_are_those_of_the_jobs_that_get_one() -> None:
    work = 7 * 3600 * GPU_RATE
    every = [Job("attack", Path(str(number)), work, gpu=number < 2) for number in range(3)]
    start = 2 * START_SECONDS["spawn"] / 3600
    assert gpu_hours(frozenset(every), MACHINE) == pytest.approx(2 * 7 + start)


CPL = "photos/lenet/untrained/honest/fedsgd+victims=64/none/cpl"
UNTRAINED, TRAINED = "photos/resnet18/untrained", "cifar10/resnet18/central+epochs=20"
CLIENTS = f"{UNTRAINED}/honest/fedsgd+victims=64/none"
LONG = f"{UNTRAINED}/honest/fedavg+victims=64+batch_size=64+local_steps=50/none"


@pytest.mark.parametrize(
    ("rule", "path", "auto", "cuda"),
    [
        ("attack", f"{CPL}+iterations=1", 0, 1),
        ("attack", CPL, 1, 1),
        ("attack", f"{CLIENTS}/invertgrad", 4, 4),
        ("attack", f"{CLIENTS}/blind", 0, 0),
        ("train_model", UNTRAINED, 0, 1),
        ("train_model", TRAINED, 4, 4),
        ("simulate_clients", CLIENTS, 0, 4),
        ("simulate_clients", LONG, 4, 4),
        ("craft_parameters", "cifar10/vgg_small/untrained/mkor", 0, 0),
        ("score_parameters", f"{TRAINED}/honest", 0, 0),
        ("score", f"{CLIENTS}/invertgrad", 0, 0),
    ],
)
def test_who_gets_how_much_of_a_gpu(rule: str, path: str, auto: int, cuda: int) -> None:
    subject = Cell.parse(dict(zip(LEVELS, path.split("/"), strict=False)))
    for device, quarters in (("auto", auto), ("cuda", cuda), ("cpu", 0)):
        assert gpu_quarters(rule, subject, device) == quarters
        (job,) = jobs([Made(rule, "", subject)], settings(Path(), device=device)) - jobs(
            files_in(STAGES[rule].reads(subject)), settings(Path(), device=device)
        )
        assert job.gpu == (quarters > 0)


def test_a_share_of_a_cell_is_weighed_by_its_own_work() -> None:
    whole = cell(CPL)
    shares = {count: Shard(whole, 1, count) for count in (1, 64)}
    quarters = {count: gpu_quarters("attack_shard", each, "auto") for count, each in shares.items()}
    assert quarters == {1: gpu_quarters("attack", whole, "auto"), 64: 0}


def test_searches_and_trainings_of_knowledge_get_a_gpu_by_their_work() -> None:
    study = load_study(REPOSITORY / "tests" / "workflow" / "studies" / "tuned.yaml")
    part = StudyPart(study, "quick", "search", "label")
    assert [gpu_quarters("search", part, device) for device in ("auto", "cuda")] == [0, 1]
    assert attacked_cell(part) == part.search.cell
    brief, long = (
        Pretraining(parse("dataset", "photos"), parse("knowledge", f"tagger+steps={steps}"))
        for steps in (1, 10**6)
    )
    assert gpu_quarters("train_knowledge", brief, "auto") == 0
    assert gpu_quarters("train_knowledge", long, "auto") > 0


def test_a_search_costs_its_trials_and_what_comes_before(tmp_path: Path):
    path = REPOSITORY / "tests" / "workflow" / "studies" / "tuned.yaml"
    study, config = load_study(path), settings(tmp_path, studies=["tuned"])
    found = study.search("label", "quick")
    whole = plan(found.cell)
    before = [job for job in whole if job.rule not in ("attack", "score")]
    seconds = sum(job.seconds(MACHINE) for job in before) + START
    seconds += found.trials * (only(whole, "attack").seconds(MACHINE) - START)
    line = describe_searches(study, config, MACHINE)
    assert "1 search of 4 trials in all" in line
    assert float(line.split()[-5]) == pytest.approx(seconds, rel=0.05)
    assert (
        describe_searches(load_study(REPOSITORY / "studies" / "mkor.yaml"), config, MACHINE) == ""
    )
    assert "search" not in rules(plan_study(study, config)[TOGETHER])


def test_a_table_has_a_row_for_each_plan():
    both = plan(cell(), cell(attack="dlg"))
    lines = show({"one": plan(cell()), "two": both}, "grid", MACHINE).splitlines()
    assert lines[0].split()[:4] == ["grid", "cells", "done", "jobs"]
    assert [line.split()[:5] for line in lines[2:]] == [
        ["one", "0", "of", "1", "5"],
        ["two", "0", "of", "2", "7"],
    ]
    assert max(map(len, lines)) <= 100
    assert describe_jobs(both) == (
        "jobs: prepare_dataset 1, train_model 1, simulate_clients 1, attack 2, score 2"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (99, "99 s"), (120, "2 min"), (9e4, "25 h")]
)
def test_times_are_shown_in_a_readable_unit(seconds: float, text: str):
    work = (seconds - START) * RATE
    found = frozenset([Job("attack", Path("x"), work)])
    assert f" {text} " in show({"one": found}, "grid", MACHINE)


@given(st.floats(0.01, 100))
def test_hours_are_inverse_to_the_speed_of_the_machine(times: float):
    found = plan(cell(), cell(attack="dlg"))
    measured = Machine("fork", Speed(speed=times, host="node", measured=date(2026, 1, 2)))
    assert hours(found, measured) == pytest.approx(hours(found, MACHINE) / times)


def test_the_line_under_the_table_says_how():
    assumed = describe_assumptions(MACHINE)
    for text in (f"{RATE / 1e9:g} billion", f"{1000 * CALL_SECONDS:g} ms", "gleak plan --measure"):
        assert text in assumed
    assert "\n" not in assumed
    speed = Speed(speed=0.5, host="node7", measured=date(2026, 1, 2))
    measured = describe_assumptions(Machine("spawn", speed))
    for text in (f"{RATE / 2e9:g} billion", "10 ms", "node7, 2026-01-02", "0.5 times", "spawn"):
        assert text in measured
    assert "--measure" not in measured


def test_of_captured_clients_files_are_taken_and_nothing_is_trained() -> None:
    steps = "victims=3+batch_size=2+local_steps=2"
    specs = {"training": "captured", "client": f"captured+{steps}"}
    captured, simulated = plan(cell(**specs)), plan(cell(client=f"fedavg+{steps}"))
    taken = {"take_captured_model", "take_captured_update", "take_captured_truth"}
    assert {job.rule for job in captured} == {"prepare_dataset", *taken, "attack", "score"}
    assert gigabytes(captured) == gigabytes(simulated)
    assert 0 < only(captured, "take_captured_truth").work < only(simulated, "simulate_clients").work


CPL_CELL = "cifar10/lenet/untrained/honest/fedsgd+victims=1000/none/cpl"


@pytest.mark.parametrize(
    ("path", "device", "checkpoint"),
    [
        (CPL_CELL, "cpu", 1000 * 3072 * 832),
        (CPL_CELL.replace("=1000", "=9000"), "cpu", CPU_BYTES),
        (CPL_CELL.replace("=1000", "=9000"), "auto", 9000 * 3072 * 832),
        (CPL_CELL.replace("=1000", "=90000"), "cuda", GPU_BYTES),
        (CPL_CELL.replace("/cpl", "/invertgrad"), "cpu", 1000 * 3072 * 16),
        (CPL_CELL.replace("/cpl", "/random_noise"), "cpu", 0),
    ],
)
def test_an_attack_asks_for_the_memory_of_a_checkpoint(
    path: str, device: str, checkpoint: int
) -> None:
    """In 4 bytes a value: points and best points, and what the optimizer keeps of each."""
    cell = Cell.parse(dict(zip(LEVELS, path.split("/"), strict=True)))
    memory = STAGES["attack"].memory
    plain = memory.base + memory.copies * update_bytes(cell) // 10**6
    assert job_megabytes(memory, cell, device) == pytest.approx(plain + checkpoint // 10**6, abs=1)
    assert job_megabytes(STAGES["score"].memory, cell, device) == STAGES["score"].memory.base
