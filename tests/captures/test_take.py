"""From a capture to the files of the workflow, against those of a simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.protocol import Protocol
from gleak.artifacts.reconstruction import Reconstruction
from gleak.artifacts.update import GRANTS, Granted, Update
from gleak.attacks.run_attack import attack
from gleak.captures.importing import import_capture
from gleak.captures.locations import Captures
from gleak.captures.round_folder import Files
from gleak.captures.take import take_captured_model, take_captured_truth, take_captured_update
from gleak.clients.gradient_descent import descend, mini_batches
from gleak.core.errors import ArtifactError
from gleak.core.registry import parse
from gleak.data.prepare import prepare_dataset
from gleak.metrics.score import score
from gleak.models.broadcast import load_network
from gleak.simulation.simulate import simulate_clients
from gleak.studies.cell import LEVELS, Cell
from gleak.training.base import test_accuracy as accuracy
from gleak.training.train_model import train_model

FIELDS = "victims=2+batch_size=2+local_steps=3+local_lr=0.05"
SPECS = f"digits+size=8/lenet+width=4/captured/honest/captured+{FIELDS}/none/cpl+iterations=5"
SEED = 1


@dataclass(frozen=True)
class Pair:
    """Two folders with a cell each: simulated, and captured from the simulation."""

    simulated: Path
    captured: Path
    capture: Path
    cell: Cell

    def take(self, **changes: str) -> Path:
        """All stages up to the defence; gives the folder of the files."""
        cell = Cell.parse({**self.cell.strings(), **changes})
        upto, folder = cell.upto("defense"), self.captured
        dataset, model = folder / "dataset.h5", folder / "model.h5"
        take_captured_model(cell.upto("training"), self.capture / "model.h5", dataset, model)
        take_captured_update(upto, self.capture / "update.h5", folder / "update.h5")
        truth = self.capture / "private.h5"
        take_captured_truth(upto, truth, dataset, model, folder, seed=SEED, device="cpu")
        return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Clients that are simulated, whose state dicts are then imported."""
    folder, other, data = (tmp_path_factory.mktemp(kind) for kind in ("sim", "cap", "data"))
    cell = Cell.parse(dict(zip(LEVELS, SPECS.split("/"), strict=True)))
    for place in (folder, other):
        prepare_dataset(cell.dataset, data, SEED, place / "dataset.h5")
    training = parse("training", "untrained+init=uniform")
    files, options = (folder / "dataset.h5", folder / "model.h5"), {"seed": SEED, "device": "cpu"}
    train_model(cell.model, training, *files, **options)
    client = parse("client", f"fedavg+{FIELDS}+sends=weights")
    simulate_clients(client, cell.defense, *files, folder, spec="simulated", **options)
    import_capture(cell.upto("defense"), states(folder), Captures(data), data)
    return Pair(folder, other, Captures(data).folder("mine"), cell)


def states(folder: Path) -> Files:
    """State dicts of a simulation's clients, computed anew."""
    network = load_network(Model.read(folder / "model.h5"), "model.h5")
    private = Private.read(folder / "private.h5")
    named = {kind: [folder / f"{kind}-{v}.safetensors" for v in range(2)] for kind in ("w", "t")}
    save_file(network.state_dict(), folder / "before.safetensors")
    for victim, (weights, truth) in enumerate(zip(*named.values(), strict=True)):
        held = {k: torch.from_numpy(getattr(private, k)[victim]) for k in ("inputs", "labels")}
        batches = mini_batches(2, 2, 3, shuffled=False)
        after = descend(network, *held.values(), batches, Protocol(local_lr=0.05)).parameters
        save_file(after, weights)
        save_file(held, truth)
    return Files(folder / "before.safetensors", *named.values())


def test_every_file_is_as_of_the_simulation(pair: Pair) -> None:
    folder, expected = pair.take(), pair.simulated
    update, simulated = (Update.read(place / "update.h5") for place in (folder, expected))
    for name, sent in simulated.update.items():
        assert np.array_equal(update.update[name].decode(), sent.decode())
    assert update.protocol.content == simulated.protocol.content == "difference"
    private, truth = (Private.read(place / "private.h5") for place in (folder, expected))
    for key in ("inputs", "labels", "embeddings", "drift", "seed", "modality"):
        assert np.array_equal(getattr(private, key), getattr(truth, key)), key
    assert private.perturbation is None
    for grant in GRANTS:
        found, wanted = (Granted.read(p / f"granted/{grant}.h5") for p in (folder, expected))
        assert np.array_equal(found.values, wanted.values), grant
    assert {update.spec, private.spec} == {str(pair.cell.upto("defense"))}


def test_an_attack_finds_the_same_and_scores_the_same(pair: Pair, tmp_path: Path) -> None:
    found = []
    for folder in (pair.take(), pair.simulated):
        output = tmp_path / folder.name / "reconstruction.h5"
        sent = folder / "update.h5", folder / "model.h5"
        attack(pair.cell.attack, *sent, {}, output, seed=SEED, device="cpu")
        levels = {**pair.cell.strings(), "grants": ""}
        table = score(folder / "private.h5", tmp_path / "scores.csv", levels, output)
        found.append((Reconstruction.read(output).inputs, table))
    (captured, scores), (simulated, others) = found
    assert np.array_equal(captured, simulated)
    only_simulated = others["metric"].isin(["perturbation", "sent_kilobytes"])
    assert only_simulated.any()
    assert scores.equals(others[~only_simulated].reset_index(drop=True))


def test_the_accuracy_of_captured_parameters_is_measured(pair: Pair) -> None:
    model, dataset = (
        kind.read(pair.take() / f"{kind.__name__.lower()}.h5") for kind in (Model, Dataset)
    )
    assert model.test_accuracy.tolist() == accuracy(load_network(model, "model.h5"), dataset)
    assert model.spec == "digits+size=8/lenet+width=4/captured"


@pytest.mark.parametrize(
    ("field", "said", "found"),
    [
        ("victims", 1, 2),
        ("batch_size", 4, 2),
        ("local_steps", 6, 3),
        ("local_lr", 0.1, 0.05),
        ("loss", "nll_raw", "cross_entropy"),
        ("content", "gradient", "difference"),
    ],
)
def test_a_client_that_says_otherwise_is_refused_with_the_field(
    pair: Pair, field: str, said: object, found: object
) -> None:
    fields = dict(part.split("=") for part in FIELDS.split("+"))
    fields |= {"sends": "gradient"} if field == "content" else {field: str(said)}
    client = "+".join(["captured", *(f"{name}={value}" for name, value in fields.items())])
    message = f"update.h5: {field} is {found}, but {said} in the path; use the command"
    with pytest.raises(ArtifactError, match=message):
        pair.take(client=client)


def test_another_defense_than_that_of_the_capture_is_refused(pair: Pair) -> None:
    with pytest.raises(ArtifactError, match="imported with defense none, not gaussian; use the"):
        pair.take(defense="gaussian")


@pytest.mark.parametrize("changes", [{"model": "lenet+width=5"}, {"dataset": "digits+size=12"}])
def test_a_capture_of_another_model_or_dataset_is_refused(
    pair: Pair, changes: dict[str, str]
) -> None:
    with pytest.raises(ArtifactError, match=r"model\.h5: captured for digits\+size=8/lenet\+w"):
        pair.take(**changes)


def test_a_dataset_that_has_lost_a_class_since_is_refused(pair: Pair, tmp_path: Path) -> None:
    dataset = Dataset.read(pair.simulated / "dataset.h5")
    replace(dataset, class_names=dataset.class_names[:9]).write(tmp_path / "dataset.h5")
    files = pair.capture / "model.h5", tmp_path / "dataset.h5", tmp_path / "model.h5"
    with pytest.raises(ArtifactError, match=r"has 10 classes, but .* now has 9"):
        take_captured_model(pair.cell.upto("training"), *files)


def test_training_samples_that_a_client_holds_are_not_granted(pair: Pair, tmp_path: Path) -> None:
    """One of each class in the train split is the clients' own: no other is there to be granted."""
    dataset = Dataset.read(pair.simulated / "dataset.h5")
    private = Private.read(pair.capture / "private.h5")
    own = np.arange(4).reshape(2, 2)
    few = replace(
        dataset,
        train_inputs=np.repeat(dataset.train_inputs[:4], 2, axis=0),
        train_labels=np.repeat(np.arange(4), 2),
    )
    few.write(tmp_path / "dataset.h5")
    held = replace(private, inputs=dataset.samples("train", own), labels=own)
    held.write(tmp_path / "held.h5")
    files = tmp_path / "held.h5", tmp_path / "dataset.h5", pair.simulated / "model.h5"
    take_captured_truth(pair.cell.upto("defense"), *files, tmp_path, seed=SEED, device="cpu")
    for grant in ("class_sample", "auxiliary_inputs"):
        assert Granted.read(tmp_path / f"granted/{grant}.h5").values.shape[1] == 0
