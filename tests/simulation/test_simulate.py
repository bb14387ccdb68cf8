from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import GRANTS, Granted, Update
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.models.broadcast import load_network
from gleak.simulation.simulate import simulate_clients

CLIENT = "fedsgd+batch_size=2+victims=3"
TRAINING = "batch_norm=training"
FILES = ["update.h5", "private.h5", *(f"granted/{grant}.h5" for grant in GRANTS)]


def run(source: Path, folder: Path, client: str = CLIENT, defense: str = "none") -> None:
    specs = parse("client", client), parse("defense", defense)
    paths = source / "dataset.h5", source / "model.h5", folder
    simulate_clients(*specs, *paths, spec="a/cell", seed=1, device="cpu")


def read(folder: Path) -> tuple[Private, Update]:
    return Private.read(folder / "private.h5"), Update.read(folder / "update.h5")


@pytest.fixture
def source(simulate: Callable[..., Path]) -> Path:
    return simulate()


DEFENSES = ["none", "fedcdp", "gaussian", "laplace", "qsgd", "signsgd", "soteria+probes=2"]


@pytest.mark.parametrize("defense", [*DEFENSES, "topk+scope=global+keep=0.01"])
def test_equal_inputs_give_equal_bytes(source: Path, tmp_path: Path, defense: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        run(source, folder, defense=defense)
    for file in FILES:
        assert (first / file).read_bytes() == (second / file).read_bytes()
    assert len(list((first / "granted").iterdir())) == len(GRANTS)
    assert all(Granted.read(first / f"granted/{grant}.h5").grant == grant for grant in GRANTS)


def test_update_and_embeddings_are_those_of_the_private_samples(
    source: Path, tmp_path: Path, images: Dataset
) -> None:
    run(source, tmp_path)
    private, update = read(tmp_path)
    assert np.array_equal(private.inputs, images.samples("test", private.indices))
    assert np.array_equal(private.labels, images.test_labels[private.indices])
    network = load_network(Model.read(source / "model.h5"), "model.h5")
    assert private.embeddings is not None
    for victim, held in enumerate(zip(private.inputs, private.labels, strict=True)):
        samples = [torch.from_numpy(values) for values in held]
        for name, value in parse("client", CLIENT).compute(network, *samples).items():
            assert np.array_equal(update.update[name].decode()[victim], value.numpy())
        features = network[:-1](samples[0]).detach().numpy()
        np.testing.assert_allclose(private.embeddings[victim], features, rtol=1e-5)


def test_in_training_mode_the_update_is_that_of_torchs_training_mode(
    simulate: Callable[..., Path],
) -> None:
    folder = simulate(model="vgg_small+width=4+hidden=8+norm=batch", client=f"{CLIENT}+{TRAINING}")
    private, update = read(folder)
    assert update.protocol.batch_norm == "training"
    network = load_network(Model.read(folder / "model.h5"), "model.h5").train()
    parameters = dict(network.named_parameters())
    for victim, (inputs, labels) in enumerate(zip(private.inputs, private.labels, strict=True)):
        logits = network(torch.from_numpy(inputs))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        for name, value in zip(parameters, gradients, strict=True):
            sent = torch.from_numpy(update.update[name].decode()[victim, 0])
            assert torch.allclose(sent, value, rtol=1e-3, atol=1e-5), name


def test_a_table_keeps_the_groups_of_its_columns_and_a_dense_layer_of_samples_has_no_embeddings(
    simulate: Callable[..., Path], tmp_path: Path, table: Dataset
) -> None:
    run(simulate("tabular"), tmp_path)
    private = Private.read(tmp_path / "private.h5")
    assert np.array_equal(private.feature_groups, table.feature_groups)
    assert private.embeddings is None
    granted = Granted.read(tmp_path / "granted" / "embeddings.h5")
    assert granted.values.shape == (3, 2, 0)


@pytest.mark.parametrize("defense", ["fedcdp", "gaussian", "qsgd", "soteria+probes=2"])
def test_a_victims_update_does_not_depend_on_the_others(
    source: Path, tmp_path: Path, defense: str
) -> None:
    run(source, tmp_path / "few", "fedsgd+victims=2", defense)
    run(source, tmp_path / "more", "fedsgd+victims=5", defense)
    few, more = (Update.read(tmp_path / name / "update.h5").update for name in ("few", "more"))
    for name in few:
        assert np.array_equal(few[name].decode(), more[name].decode()[:2])


def test_repeated_victims_share_samples_but_no_random_numbers(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path, "fedsgd+victims=4+repeats=2", "gaussian")
    private, update = read(tmp_path)
    first, again, other, _ = private.indices
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    noisy = update.update["0.weight"].decode()
    assert 0.01 < (noisy[0] - noisy[1]).std() < 0.02  # of two draws with deviation 0.01


@pytest.mark.parametrize("order", ["fixed", "shuffled"])
@pytest.mark.parametrize("augmentation", ["", "+augmentation=flip"])
def test_samples_that_steps_take_are_kept_with_the_truth(
    source: Path, tmp_path: Path, order: str, augmentation: str
) -> None:
    client = f"fedavg+victims=2+batch_size=7+mini_batch=4+drop_last=true+order={order}"
    run(source, tmp_path, client=client + augmentation)
    private, update = read(tmp_path)
    assert private.rounds is not None and private.rounds.shape == (2, 1, 7)
    network = load_network(Model.read(source / "model.h5"), "model.h5")
    for victim, (positions,) in enumerate(private.rounds):
        used = np.unique(positions)
        assert len(used) == 4
        inputs, labels = private.inputs[victim][used], private.labels[victim][used]
        loss = torch.nn.functional.cross_entropy(
            network(torch.from_numpy(inputs)), torch.from_numpy(labels)
        )
        values = torch.autograd.grad(loss, [*network.parameters()])
        for (name, _), value in zip(network.named_parameters(), values, strict=True):
            sent = update.update[name].decode()[victim, 0]
            np.testing.assert_allclose(sent, value.numpy(), atol=1e-6)


def test_clients_whose_steps_take_all_samples_keep_no_positions(
    source: Path, tmp_path: Path
) -> None:
    run(source, tmp_path, client="fedavg+batch_size=8+mini_batch=4+local_steps=2+drop_last=true")
    assert read(tmp_path)[0].rounds is None


def test_a_defence_is_given_each_victims_own_samples(
    simulate: Callable[..., Path], tmp_path: Path
) -> None:
    source = simulate(model="lenet+width=4+activation=relu")
    run(source, tmp_path, "fedsgd+victims=6", "soteria+probes=none")
    left = Update.read(tmp_path / "update.h5").update["7.weight"].decode()[:, 0] == 0
    assert (left == left[:, :1]).all()
    assert len({mask.tobytes() for mask in left[:, 0]}) > 1
    private = Private.read(tmp_path / "private.h5")
    network = load_network(Model.read(source / "model.h5"), "model.h5")
    for victim, (inputs, labels) in enumerate(zip(private.inputs, private.labels, strict=True)):
        held = torch.from_numpy(inputs), torch.from_numpy(labels)
        plain = parse("client", "fedsgd").compute(network, *held)
        sent = parse("defense", "soteria+probes=none").with_samples(plain, network, *held)
        assert np.array_equal((sent["7.weight"][0] == 0).numpy(), left[victim])


@pytest.mark.parametrize(
    ("client", "steps"),
    [
        ("fedsgd+batch_size=2", 1),
        ("fedavg+batch_size=2+local_steps=4+mini_batch=1", 4),
        ("epochs+batch_size=4+update_size=2+epochs=3+local_steps=2", 12),
    ],
)
def test_every_noisy_step_of_every_victim_is_accounted_for(
    client: str, steps: int, source: Path, tmp_path: Path
) -> None:
    run(source, tmp_path, f"{client}+victims=3", "fedcdp+snr=10")
    found = Private.read(tmp_path / "private.h5").noise_multipliers
    assert found is not None
    assert found.shape == (3, steps)
    assert len(np.unique(found)) == 3 * steps
    run(source, tmp_path, f"{client}+victims=3", "gaussian")
    assert Private.read(tmp_path / "private.h5").noise_multipliers is None


@pytest.mark.parametrize(
    ("client", "fault"),
    [
        ("fedsgd+batch_size=7+classes=1", "tiny: client .* have 6 samples .* choose more classes"),
        ("fedsgd+batch_size=25", "25 is more than the 24 samples"),
    ],
)
def test_batches_that_the_dataset_cannot_supply_are_refused(
    source: Path, tmp_path: Path, client: str, fault: str
) -> None:
    with pytest.raises(IncompatibleError, match=fault):
        run(source, tmp_path, client)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("defense", "of_each"),
    [("none", 32), ("topk+keep=1", 33), ("secure_aggregation+clients=2", 32)],
)
def test_the_size_of_what_one_client_sends_is_kept_with_the_truth(
    source: Path, tmp_path: Path, defense: str, of_each: int
) -> None:
    """Values have 32 bits; where positions are sent, a mask has one bit for each."""
    run(source, tmp_path, defense=defense)
    network = load_network(Model.read(source / "model.h5"), "model.h5")
    values = sum(value.numel() for value in network.parameters())
    found = Private.read(tmp_path / "private.h5").sent_bytes
    np.testing.assert_array_equal(found, np.full((3, 1), values * of_each / 8))
