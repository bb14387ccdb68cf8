"""The stages that make ``reconstruction.h5``, on files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gleak.artifacts.model import Knowledge, Secret
from gleak.artifacts.reconstruction import TRACES, Reconstruction
from gleak.artifacts.update import Granted, Update
from gleak.attacks.base import AttackSpec
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import attack, gather_shards, observe, share, total_cost
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.registry import parse
from gleak.models.batching import interacting_layer
from gleak.models.broadcast import load_network
from gleak.runtime.provenance import record
from gleak.testing.tiny_cells import TinyCells

Simulate = Callable[..., Path]
Forge = Callable[[Path], AbstractContextManager[h5py.File]]
VICTIMS = 5


@pytest.fixture
def folder(simulate: Simulate, tmp_path: Path) -> Path:
    """Folder with the files of the attacker only."""
    made = simulate(client=f"fedsgd+batch_size=2+victims={VICTIMS}", defense="topk+keep=0.5")
    copytree(made, tmp_path / "cell")
    for secret in ("private.h5", "dataset.h5"):
        (tmp_path / "cell" / secret).unlink()
    return tmp_path / "cell"


def run(
    folder: Path,
    output: Path,
    spec: str = "cpl+iterations=1",
    victims: slice = slice(None),
    parameters: Path | None = None,
) -> Reconstruction:
    attack(
        parse("attack", spec),
        folder / "update.h5",
        parameters or folder / "model.h5",
        {grant: folder / "granted" / f"{grant}.h5" for grant in parse("attack", spec).grants},
        output,
        victims=victims,
        seed=3,
        device="cpu",
    )
    return Reconstruction.read(output)


def observed(
    folder: Path, granted_paths: dict[str, Path] | None = None, **options: Any
) -> Observation:
    files = (folder / "update.h5", folder / "model.h5", granted_paths or {})
    return observe(*files, seed=3, device="cpu", **options)


@pytest.mark.parametrize("spec", ["blind", "cpl+iterations=2", "invertgrad+iterations=5"])
def test_equal_inputs_give_equal_bytes_without_any_secret(
    folder: Path, tmp_path: Path, spec: str
) -> None:
    outputs = [tmp_path / name / "reconstruction.h5" for name in ("first", "second")]
    found, _ = (run(folder, output, spec) for output in outputs)
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    assert (found.spec, found.seed) == (f"tiny/lenet+width=4/{spec}", 3)


FEW_STEPS = "cpl+iterations=1+labels=known+optimizer=lbfgs~inner=5"  # more magnify rounding


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "shards"),
    [
        (FEW_STEPS, 2),
        (FEW_STEPS, 3),
        ("blind", 2),
        ("blind", VICTIMS),
        ("melis", VICTIMS),
    ],
)
def test_shares_gathered_are_the_whole(
    folder: Path, tmp_path: Path, spec: str, shards: int
) -> None:
    whole = run(folder, tmp_path / "whole.h5", spec)
    parts = [tmp_path / f"{shard}.h5" for shard in range(1, shards + 1)]
    for shard, part in enumerate(parts, start=1):
        run(folder, part, spec, victims=share(VICTIMS, shard, shards))
    gather_shards(parts, tmp_path / "gathered.h5")
    gathered = Reconstruction.read(tmp_path / "gathered.h5")
    for name, value in vars(whole).items():
        if isinstance(value, np.ndarray) and not name.startswith("snapshot"):
            np.testing.assert_allclose(
                getattr(gathered, name), value, rtol=1e-3, atol=1e-3, err_msg=name
            )
    assert gathered.spec == whole.spec


def test_what_attacks_found_is_gathered_with_what_they_say_of_it(
    folder: Path, tmp_path: Path
) -> None:
    whole = run(folder, tmp_path / "whole.h5", "blind")
    behind = np.arange(2 * VICTIMS).reshape(VICTIMS, 2)
    whole = replace(whole, averaged_count=behind, paired=True)
    parts = [share(VICTIMS, shard, 2) for shard in (1, 2)]
    for number, part in enumerate(parts):
        fields = {name: getattr(whole, name)[part] for name in ("inputs", "labels", "converged")}
        replace(whole, **fields, averaged_count=behind[part]).write(tmp_path / f"{number}.h5")
    gather_shards([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "gathered.h5")
    gathered = Reconstruction.read(tmp_path / "gathered.h5")
    assert gathered.paired
    assert np.array_equal(gathered.averaged_count, behind)


def test_what_only_some_shares_recorded_is_left_out(folder: Path, tmp_path: Path) -> None:
    """As by `best`, which runs other attacks on other victims."""
    searched = run(folder, tmp_path / "1.h5")
    other = {"trace_iteration": 2 * searched.trace_iteration}
    read = dict.fromkeys(("evaluations", "iterations", "restarts", "objective", *TRACES))
    for fields in (read, other):
        replace(searched, **fields, paired=True).write(tmp_path / "2.h5")
        gather_shards([tmp_path / "1.h5", tmp_path / "2.h5"], tmp_path / "gathered.h5")
        found = Reconstruction.read(tmp_path / "gathered.h5")
        assert len(found.inputs) == len(found.converged) == 2 * VICTIMS
        assert found.trace_objective is None
        assert (found.evaluations is None) == (fields is read)
        assert not found.paired


def test_shares_that_found_different_numbers_of_samples_are_not_joined(
    folder: Path, tmp_path: Path
) -> None:
    whole = run(folder, tmp_path / "1.h5")
    fewer = {"inputs": whole.inputs[:, :1], "labels": whole.labels[:, :1]}
    replace(whole, **fewer, snapshots=None, snapshot_iteration=None).write(tmp_path / "2.h5")
    with pytest.raises(ArtifactError, match=r"numbers of samples, \[1, 2\].*shards=1"):
        gather_shards([tmp_path / "1.h5", tmp_path / "2.h5"], tmp_path / "gathered.h5")


@pytest.mark.usefixtures("bringing")
def test_an_attack_is_given_what_it_brings_as_a_network_that_learns_no_more(
    folder: Path, codec: Path, tmp_path: Path
) -> None:
    seen = observed(folder, knowledge_paths=[codec])
    (name, network), *others = seen.knowledge.items()
    assert (name, others) == ("codec", [])
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert seen.of_victim(0).knowledge == seen.of_round(0).knowledge == seen.knowledge
    assert observed(folder).knowledge == {}
    spec = parse("attack", "bringing+codec=codec~steps=2~width=4~size=32")
    files = (folder / "update.h5", folder / "model.h5", {}, tmp_path / "r.h5")
    attack(spec, *files, knowledge_paths=[codec], seed=3, device="cpu")
    with torch.no_grad():
        expected = network.decode(torch.zeros(1, 32)).numpy()
    found = Reconstruction.read(tmp_path / "r.h5").inputs
    assert np.array_equal(found, np.broadcast_to(expected, found.shape))


def test_knowledge_of_other_samples_is_refused(folder: Path, codec: Path, tmp_path: Path) -> None:
    other = tmp_path / "knowledge.h5"
    replace(Knowledge.read(codec), input_shape=np.array([1, 8, 8])).write(other)
    with pytest.raises(ArtifactError, match=r"for samples of shape \(1, 8, 8\), but these have"):
        observed(folder, knowledge_paths=[other])


@given(st.integers(1, 50), st.integers(1, 50))
def test_shares_are_nearly_equal_and_leave_nobody_out(victims: int, shards: int) -> None:
    parts = [range(victims)[share(victims, shard, shards)] for shard in range(1, shards + 1)]
    assert [victim for part in parts for victim in part] == list(range(victims))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_costs_of_shares_are_added_and_the_largest_memory_counts(tmp_path: Path) -> None:
    costs = [
        {"seconds": 3.0, "cpu_seconds": 5.0, "peak_memory_mb": 10.0, "device": "GPU 1"},
        {"seconds": 4.0, "cpu_seconds": 1.0, "peak_memory_mb": 30.0, "device": "GPU 1"},
    ]
    for number, cost in enumerate(costs):
        (tmp_path / str(number)).mkdir()
        with record(tmp_path / str(number), **cost):
            pass
    shards = [tmp_path / str(number) / "reconstruction.h5" for number in range(2)]
    assert total_cost(shards) == costs[0] | {
        "seconds": 7.0,
        "cpu_seconds": 6.0,
        "peak_memory_mb": 30.0,
    }


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_update_that_is_not_finite_is_named(folder: Path, forged: Forge, value: float) -> None:
    with forged(folder / "update.h5") as file:
        file["update/0.weight/values"][2, 0, 1] = value
    fault = r"update\.h5: /update/0\.weight/values contains 1 values"
    with pytest.raises(ArtifactError, match=fault):
        run(folder, folder / "reconstruction.h5")
    assert not (folder / "reconstruction.h5").exists()


def test_parameters_of_another_architecture_are_named(folder: Path, simulate: Simulate) -> None:
    wider = simulate(model="lenet+width=5") / "model.h5"
    fault = r"update\.h5: /update/0\.weight .* does not belong to these"
    with pytest.raises(ArtifactError, match=fault):
        run(folder, folder / "reconstruction.h5", parameters=wider)


def test_an_update_without_a_parameter_is_named(folder: Path) -> None:
    update = Update.read(folder / "update.h5")
    some = {name: value for name, value in update.update.items() if name != "0.bias"}
    replace(update, update=some).write(folder / "update.h5")
    fault = (
        r"/update/0\.bias is missing, but in .*model\.h5 it has shape .*; if 0\.bias had no "
        r"gradient, give None for it, or freeze it \(requires_grad_\(False\)\)$"
    )
    with pytest.raises(ArtifactError, match=fault):
        run(folder, folder / "reconstruction.h5")


def test_what_all_victims_share_is_held_once(folder: Path) -> None:
    granted = {name: folder / "granted" / f"{name}.h5" for name in ("mean_input", "class_sample")}
    some = slice(1, 4)
    seen = observed(folder, granted, victims=some).granted
    stored = {name: Granted.read(path).values for name, path in granted.items()}
    assert seen["mean_input"].stride()[0] == 0
    for victim in range(3):
        assert np.array_equal(seen["mean_input"][victim], stored["mean_input"][0])
    assert np.array_equal(seen["class_sample"], stored["class_sample"][some])


def test_the_network_of_clients_in_training_mode_normalises_by_the_batch(
    simulate: Simulate,
) -> None:
    model, client = "vgg_small+width=4+hidden=8+norm=batch", "fedsgd+batch_size=2+victims=2"
    for mode in ("evaluation", "training"):
        seen = observed(simulate(model=model, client=f"{client}+batch_norm={mode}"))
        layer = interacting_layer(seen.model, seen.input_shape)
        assert (layer is None) == (mode == "evaluation")


READ = "7.bias"


@pytest.mark.parametrize("only", [{READ}, {"0.weight", "7.weight"}, None])
def test_only_what_an_attack_reads_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, only: set[str] | None
) -> None:
    asked: list[tuple[int, ...]] = []

    def reads(network: nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        asked.append(input_shape)
        assert READ in dict(network.named_parameters())
        return None if only is None else frozenset(only)

    loaded: set[str] = set()
    original = h5py.Dataset.__getitem__

    def listening(dataset: h5py.Dataset, part: object) -> np.ndarray:
        if Path(dataset.file.filename).name == "update.h5":
            loaded.add(dataset.name.removeprefix("/update/").partition("/")[0])
        return original(dataset, part)

    with monkeypatch.context() as patched:
        patched.setattr(h5py.Dataset, "__getitem__", listening)
        seen = observed(folder, reads=reads)
    names = set(dict(seen.model.named_parameters()))
    assert loaded == set(seen.update) == set(seen.sent) == (only or names)
    assert asked == [(3, 8, 8)]
    whole = Update.read(folder / "update.h5").update
    for name, value in seen.update.items():
        assert np.array_equal(value.numpy(), whole[name].decode())
    assert seen.victims == VICTIMS


def test_what_is_not_read_may_be_damaged(folder: Path, forged: Forge) -> None:
    """Nobody looks there; what is read is checked as always."""
    with forged(folder / "update.h5") as file:
        file["update/0.weight/values"][0] = np.nan
    assert set(observed(folder, reads=lambda *_: frozenset({READ})).update) == {READ}
    with pytest.raises(ArtifactError, match=r"/update/0\.weight"):
        observed(folder)


class Reader(AttackSpec):
    """Says what it knows of the server's secret: one grey for all of its samples."""

    name: ClassVar[str] = "reader"
    crafting: ClassVar[str | None] = "honest"

    def reconstruct(self, observation: Observation) -> Reconstruction:
        (grey,) = observation.secret.get("grey", [0.0])
        shape = (observation.victims, observation.batch_size)
        return Reconstruction(
            inputs=np.full((*shape, *observation.input_shape), grey, dtype=np.float32),
            labels=np.zeros(shape, dtype=int),
            converged=np.ones(observation.victims, dtype=bool),
        )


@pytest.mark.parametrize("known", [True, False])
def test_an_attack_reads_the_servers_secret_where_it_is_given(
    folder: Path, tmp_path: Path, known: bool
) -> None:
    Secret(values={"grey": np.array([0.25])}).write(tmp_path / "secret.h5")
    attack(
        Reader(),
        folder / "update.h5",
        folder / "model.h5",
        {},
        tmp_path / "reconstruction.h5",
        secret_path=tmp_path / "secret.h5" if known else None,
        seed=3,
        device="cpu",
    )
    found = Reconstruction.read(tmp_path / "reconstruction.h5").inputs
    assert (found == (0.25 if known else 0)).all()


def test_attacks_that_read_a_frozen_parameter_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frozen(*arguments: object) -> nn.Module:
        network = load_network(*arguments)
        network.get_parameter("7.bias").requires_grad_(False)
        return network

    monkeypatch.setattr("gleak.attacks.run_attack.load_network", frozen)
    with pytest.raises(IncompatibleError, match=r"reads the gradient of 7\.bias, which is frozen"):
        observed(folder, reads=lambda *_: frozenset({"7.bias"}))


def double_network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A network of a user, in double precision, with a parameter without axes."""
    layers = nn.Flatten(), nn.Linear(int(np.prod(shape)), 8), nn.BatchNorm1d(8), nn.PReLU()
    layers[3].weight = nn.Parameter(torch.tensor(0.2))
    return nn.Sequential(*layers, nn.Linear(8, classes)).double()


@pytest.mark.parametrize(
    "defense", ["none", "topk", "low_rank+rank=1", "qsgd", "quantize", "signsgd", "soteria"]
)
def test_double_networks_and_scalars_pass_through_all_stages(
    defense: str, cells: TinyCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever encodes the update, training, clients and attacks compute in double precision."""
    monkeypatch.setitem(sys.modules, "double_networks", sys.modules[__name__])
    model = "custom+factory=double_networks.double_network"
    training = "federated+clients=2+rounds=1+batch_size=4" if defense == "none" else "untrained"
    client = "fedavg+local_steps=2+local_lr=0.1+batch_size=2+victims=1"
    folder = cells.simulate("image", model, training, client, defense)
    spec = parse("attack", "invertgrad+iterations=2")
    seen = cells.observe(folder, spec)
    assert {value.dtype for value in seen.update.values()} == {torch.float64}
    assert seen.update["3.weight"].shape == (1, 1)
    found = spec.reconstruct(seen)
    assert found.inputs.dtype == np.float32
    assert np.isfinite(found.inputs).all()


def test_no_file_that_an_attack_reads_has_the_seed_of_the_run(
    cells: TinyCells, learned: Callable[[str], Path]
) -> None:
    """It tells what clients draw: their samples' order, their noise. A secret alone has it."""
    folder = cells.simulate(crafting="mkor", model="vgg_small+width=8+hidden=24")
    read = [folder / name for name in ("model.h5", "parameters.h5", "update.h5")]
    for path in [*read, *folder.glob("granted/*.h5"), learned("codec")]:
        with h5py.File(path) as file:
            assert "seed" not in file.attrs, path.name
