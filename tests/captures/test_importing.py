from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

import gleak
from gleak.artifacts.encodings import Clipped, Dense, Factored, Quantized, Rounded, Signs, Sparse
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update
from gleak.captures.importing import (
    Capture,
    captured_cell,
    check_again,
    describe_agreement,
    describe_capture,
    import_capture,
)
from gleak.captures.locations import Captures
from gleak.captures.round_folder import Files
from gleak.captures.take import take_captured_update
from gleak.captures.truth import Fit, UpdateComparison
from gleak.core.errors import ArtifactError, DataError, GleakError, IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.models.broadcast import load_network
from gleak.optimizers.sgd import SGD
from gleak.studies.cell import LEVELS, Cell

if TYPE_CHECKING:
    from tests.captures.conftest import Elsewhere

State = dict[str, Tensor]
LR = 0.1


def imported(cell: Cell, files: Files, data: Path, **options: bool) -> Capture:
    return import_capture(cell, files, Captures(data / "captures"), data, **options)


def test_an_update_is_what_gleaks_own_client_sends(elsewhere: Elsewhere, tmp_path: Path) -> None:
    """The oracle: federated averaging that sends weights."""
    capture = imported(elsewhere.cell(), elsewhere.files, tmp_path)
    update = Update.read(capture.folder / "update.h5")
    client = parse("client", "fedavg+batch_size=3+local_steps=2+local_lr=0.1+sends=weights")
    for victim, samples in enumerate(elsewhere.truth):
        for name, value in client.compute(elsewhere.network, *samples).items():
            found = torch.from_numpy(update.update[name].decode()[victim])
            torch.testing.assert_close(found, value.detach(), atol=1e-7, rtol=1e-4)
    assert capture.comparison.error < 1e-5
    assert update.protocol == client.protocol
    assert (update.seed, update.rounds) == (None, 1)
    assert update.spec == str(elsewhere.cell())
    folder = capture.folder
    assert sorted(path.name for path in folder.iterdir()) == ["model.h5", "private.h5", "update.h5"]
    model = Model.read(folder / "model.h5")
    for name, value in load_network(model, "model.h5").state_dict().items():
        assert torch.equal(value, elsewhere.network.state_dict()[name])
    assert model.spec == "digits+size=8/lenet+width=4/captured"
    private = Private.read(folder / "private.h5")
    for kind, held in zip(("inputs", "labels"), zip(*elsewhere.truth, strict=True), strict=True):
        assert np.array_equal(getattr(private, kind), torch.stack(held).numpy())
    assert (private.indices == -1).all()


def test_gradients_are_taken_as_they_are(elsewhere: Elsewhere, tmp_path: Path) -> None:
    gradients = []
    for victim, (inputs, labels) in enumerate(elsewhere.truth):
        elsewhere.network.zero_grad()
        functional.cross_entropy(elsewhere.network(inputs), labels).backward()
        sent = {name: value.grad.clone() for name, value in elsewhere.network.named_parameters()}
        gradients.append(tmp_path / f"{victim}.safetensors")
        save_file(sent, gradients[-1])
    files = replace(elsewhere.files, sent=gradients)
    capture = imported(elsewhere.cell("gradient", local_steps=1), files, tmp_path)
    update = Update.read(capture.folder / "update.h5")
    assert update.protocol.content == "gradient"
    assert capture.comparison.error < 1e-5
    for name, value in sent.items():
        assert np.array_equal(update.update[name].decode()[1, 0], value.numpy())


@pytest.mark.parametrize(("mode", "agrees"), [("training", True), ("evaluation", False)])
def test_the_truth_tells_by_which_statistics_clients_normalised(
    elsewhere: Elsewhere, tmp_path: Path, mode: str, agrees: bool
) -> None:
    model = "vgg_small+width=4+hidden=8+norm=batch"
    network = parse("model", model).build((1, 8, 8), 10)
    inputs, labels = elsewhere.truth[0]
    save_file(network.state_dict(), elsewhere.files.before)
    functional.cross_entropy(network.train()(inputs), labels).backward()
    sent = {name: value.grad for name, value in network.named_parameters()}
    save_file(sent, tmp_path / "sent.safetensors")
    first = elsewhere.files.truth[:1]
    files = replace(elsewhere.files, sent=[tmp_path / "sent.safetensors"], truth=first)
    client = {"victims": 1, "batch_size": len(labels), "sends": "gradient", "batch_norm": mode}
    cell = captured_cell("mine", "digits+size=8", model, **client).upto("defense")
    assert imported(cell, files, tmp_path).comparison.agrees == agrees


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_precision_becomes_single(
    elsewhere: Elsewhere, tmp_path: Path, dtype: torch.dtype
) -> None:
    for file in (elsewhere.files.before, *elsewhere.files.sent):
        elsewhere.spoil(file, lambda state: {n: v.to(dtype) for n, v in state.items()})
    folder = imported(elsewhere.cell(), elsewhere.files, tmp_path).folder
    model, update = (kind.read(folder / f"{kind.__name__.lower()}.h5") for kind in (Model, Update))
    values = [*model.parameters.values(), *(sent.decode() for sent in update.update.values())]
    assert {value.dtype for value in values} == {np.dtype("float32")}
    before = elsewhere.network.state_dict()["0.weight"].to(dtype).float()
    assert np.array_equal(model.parameters["0.weight"], before.numpy())


def test_buffers_come_with_the_model_alone(elsewhere: Elsewhere, tmp_path: Path) -> None:
    """Running statistics are broadcast; those that a client returns are no part of its update."""
    network = parse("model", "resnet20").build((1, 8, 8), 10)
    state = network.state_dict()
    after = {name: value + 1 for name, value in state.items()}
    uncounted = {n: v for n, v in state.items() if not n.endswith("num_batches_tracked")}
    save_file(uncounted, elsewhere.files.before)
    save_file(after, elsewhere.files.sent[0])
    cell = elsewhere.cell(victims=1)
    cell = replace(cell, specs={**cell.specs, "model": parse("model", "resnet20")})
    files = replace(elsewhere.files, sent=elsewhere.files.sent[:1], truth=())
    folder = imported(cell, files, tmp_path).folder
    names = [name for name, _ in network.named_parameters()]
    assert list(Update.read(folder / "update.h5").update) == names
    assert {*Model.read(folder / "model.h5").buffers} == state.keys() - {*names}


def put(name: str, value: Tensor) -> Callable[[State], State]:
    return lambda state: state | {name: value}


def change(name: str, function: Callable[[Tensor], Tensor]) -> Callable[[State], State]:
    return lambda state: state | {name: function(state[name])}


def drop(name: str) -> Callable[[State], State]:
    return lambda state: {key: value for key, value in state.items() if key != name}


FAULTS: dict[str, tuple[str, Callable[[State], State], str]] = {
    "renamed": (
        "before",
        lambda state: {f"net.{name}": value for name, value in state.items()},
        r"0\.weight has shape None.*did you mean 'net\.0\.weight'\?",
    ),
    "unknown": ("sent", put("8.bias", torch.ones(1)), r"8\.bias has shape \(1,\), but"),
    "left out": ("sent", drop("0.bias"), r"0\.bias missing, such as by a filter .*freezes them"),
    "shape": ("before", put("0.bias", torch.ones(9)), r"0\.bias has shape \(9,\), but"),
    "not finite": (
        "sent",
        put("0.bias", torch.full((4,), torch.nan)),
        r"0\.bias contains values that are NaN",
    ),
    "whole numbers": (
        "sent",
        put("0.bias", torch.ones(4, dtype=torch.int8)),
        r"0\.bias has torch\.int8 values; give floating point parameters",
    ),
    "no inputs": ("truth", drop("inputs"), "'inputs' is missing; give inputs"),
    "more": ("truth", put("label", torch.ones(3)), "'label' is unknown; did you mean 'labels'"),
    "batch size": (
        "truth",
        change("inputs", lambda value: value[:2].clone()),
        r"inputs has shape \(2, 1, 8, 8\), expected \(3, 1, 8, 8\) by batch_size=3.*the same batch",
    ),
    "no channel": (
        "truth",
        change("inputs", lambda value: value[:, 0].clone()),
        r"inputs has shape \(3, 8, 8\), .* by batch_size=3 and digits\+size=8; add the channel: "
        r"inputs\[:, None\]$",
    ),
    "one-hot": (
        "truth",
        change("labels", lambda value: functional.one_hot(value, 10)),
        r"labels has shape \(3, 10\), expected \(3,\) by batch_size=3; give one class index for "
        r"each sample \(labels\.argmax\(1\)\)$",
    ),
    "a column": (
        "truth",
        change("labels", lambda value: value[:, None]),
        r"one class index for each sample \(labels\[:, 0\]\)$",
    ),
    "labels": ("truth", put("labels", torch.ones(2)), r"labels has shape \(2,\)"),
    "range": (
        "truth",
        change("inputs", lambda value: value * 255),
        r"inputs has torch\.float32 values from .* expected intensities in \[0, 1\].* by 255$",
    ),
    "normalised": (
        "truth",
        change("inputs", lambda value: (value - 0.5) / 0.5),
        r"give the samples before the normalisation, and a network that normalises first \(forward",
    ),
    "bytes": ("truth", change("inputs", Tensor.byte), r"inputs has torch\.uint8 values.* by 255$"),
    "not a number": (
        "truth",
        change("inputs", lambda value: value * torch.nan),
        "inputs has .* from nan to nan, expected intensities",
    ),
    "class": (
        "truth",
        change("labels", lambda value: value + 10),
        "labels has .* expected classes 0 to 9",
    ),
    "float labels": (
        "truth",
        change("labels", Tensor.float),
        r"expected classes 0 to 9; .*labels\.long\(\)$",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_said_with_its_file_and_nothing_is_left(
    elsewhere: Elsewhere, tmp_path: Path, fault: str
) -> None:
    kind, spoil, message = FAULTS[fault]
    files = getattr(elsewhere.files, kind)
    file = files if kind == "before" else files[-1]
    elsewhere.spoil(file, spoil)
    with pytest.raises(ArtifactError, match=f"{file.name}: .*{message}"):
        imported(elsewhere.cell(), elsewhere.files, tmp_path)
    assert not (tmp_path / "captures").exists()


def test_each_client_has_sent_something_and_has_its_truth(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    given = elsewhere.files
    with pytest.raises(ArtifactError, match=r"before.safetensors: the parameters equal the broad"):
        imported(elsewhere.cell(), replace(given, sent=[given.sent[0], given.before]), tmp_path)
    with pytest.raises(ArtifactError, match="--truth: 1 files, but 2 clients"):
        imported(elsewhere.cell(), replace(given, truth=given.truth[:1]), tmp_path)


@pytest.mark.parametrize("factor", [0.01, 0.5])
def test_gradients_and_differences_are_no_states(
    elsewhere: Elsewhere, tmp_path: Path, factor: float
) -> None:
    norm = sum(value.square().sum() for value in load_file(elsewhere.files.before).values()).sqrt()

    def gradients(state: State) -> State:
        """Noise in place of gradients, which are as little like the parameters."""
        random = torch.Generator().manual_seed(0)
        drawn = {name: torch.randn(value.shape, generator=random) for name, value in state.items()}
        scale = factor * norm / sum(value.square().sum() for value in drawn.values()).sqrt()
        return {name: scale * value for name, value in drawn.items()}

    elsewhere.spoil(elsewhere.files.sent[1], gradients)
    files = replace(elsewhere.files, truth=())
    with pytest.raises(ArtifactError, match=r"after-1\.safe.* not the parameters .* --gradients"):
        imported(elsewhere.cell(), files, tmp_path)


def test_states_are_no_gradients(elsewhere: Elsewhere, tmp_path: Path) -> None:
    cell, files = elsewhere.cell("gradient", local_steps=1), replace(elsewhere.files, truth=())
    with pytest.raises(ArtifactError, match=r"after-0\.safetensors: these are the param.* --after"):
        imported(cell, files, tmp_path)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.module."])
def test_the_prefix_of_a_wrapper_is_left_out(
    elsewhere: Elsewhere, tmp_path: Path, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    for file in (elsewhere.files.before, elsewhere.files.sent[0]):
        elsewhere.spoil(file, lambda state: {prefix + name: each for name, each in state.items()})
    assert imported(elsewhere.cell(), elsewhere.files, tmp_path).comparison.error < 1e-5
    assert f"after-0.safetensors: {prefix}, which a wrapper puts" in caplog.text
    assert "after-1" not in caplog.text


def test_arrays_of_numpy_are_read(elsewhere: Elsewhere, tmp_path: Path) -> None:
    def arrays(file: Path) -> Path:
        state = {name: value.numpy() for name, value in load_file(file).items()}
        np.savez(file.with_suffix(".npz"), **state)
        return file.with_suffix(".npz")

    given = elsewhere.files
    files = Files(arrays(given.before), [*map(arrays, given.sent)], [*map(arrays, given.truth)])
    assert imported(elsewhere.cell(), files, tmp_path).comparison.error < 1e-5


def test_a_capture_is_not_replaced_unless_asked_for(elsewhere: Elsewhere, tmp_path: Path) -> None:
    folder = imported(elsewhere.cell(), elsewhere.files, tmp_path).folder
    (folder / "notes.txt").touch()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(DataError, match=r"captures/mine already exists; .*--replace"):
        imported(elsewhere.cell(), elsewhere.files, tmp_path)
    broken = replace(elsewhere.files, sent=[elsewhere.files.before] * 2)
    with pytest.raises(ArtifactError):
        imported(elsewhere.cell(), broken, tmp_path, replace=True)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    untold = replace(elsewhere.files, truth=())
    assert imported(elsewhere.cell(), untold, tmp_path, replace=True).comparison is None
    assert sorted(path.name for path in folder.iterdir()) == ["model.h5", "update.h5"]
    assert [path.name for path in folder.parent.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "said", [{"local_lr": 0.2}, {"local_steps": 1}, {"loss": "nll_raw"}], ids=lambda s: str(*s)
)
def test_the_truth_tells_that_the_protocol_is_not_as_said(
    elsewhere: Elsewhere, tmp_path: Path, said: dict[str, object]
) -> None:
    assert imported(elsewhere.cell(**said), elsewhere.files, tmp_path).comparison.error > 0.1


def test_the_rate_with_which_the_truth_gives_the_updates_is_found(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    wrong = imported(elsewhere.cell(local_lr=0.005), elsewhere.files, tmp_path).comparison
    fit, *_ = wrong.fits
    assert (wrong.agrees, fit.agrees, str(fit.optimizer), fit.rate) == (False, True, "sgd", 0.1)
    right = imported(elsewhere.cell(), elsewhere.files, tmp_path, replace=True).comparison
    assert (right.agrees, right.fits) == (True, ())


def defend_elsewhere(elsewhere: Elsewhere, defense: str) -> None:
    """Write what the clients would have sent under a defence."""
    before = elsewhere.network.state_dict()
    client = f"fedavg+local_lr={LR}+local_steps={elsewhere.steps}+sends=weights"
    for victim, file in enumerate(elsewhere.files.sent):
        after = load_file(file)
        trained = {name: after[name] - before[name] for name in before}
        sent = gleak.defend(defense, trained, seed=victim, client=client)
        save_file({name: before[name] + value for name, value in sent.items()}, file)


DEFENSES = {
    "dp+sigma=1e-3": Dense,
    "flare_percentile+gamma=0.001": Clipped,
    "flower_local_dp+epsilon=1000": Dense,
    "laplace+std=1e-3": Dense,
    "low_rank+rank=2": Factored,
    "low_rank+rank=1+basis=best": Factored,
    "gaussian+std=1e-3": Dense,
    "qsgd": Quantized,
    "quantize+bits=4": Rounded,
    "random_mask": Sparse,
    "random_mask+keep=0.05": Sparse,
    "signsgd": Signs,
    "topk+keep=0.2": Sparse,
}


@pytest.mark.parametrize("defense", DEFENSES)
def test_the_defense_of_the_clients_is_known_to_attackers_and_explains_the_updates(
    elsewhere: Elsewhere, tmp_path: Path, defense: str
) -> None:
    defend_elsewhere(elsewhere, defense)
    assert not imported(elsewhere.cell(), elsewhere.files, tmp_path).agrees
    cell = elsewhere.cell(defense=defense)
    found = imported(cell, elsewhere.files, tmp_path, replace=True)
    assert found.agrees
    update = Update.read(found.folder / "update.h5")
    assert DEFENSES[defense] in {type(one) for one in update.update.values()}
    assert update.protocol == cell.defense.protocol_of(cell.client)
    assert check_again(cell, Captures(tmp_path / "captures")).agrees
    take_captured_update(cell, found.folder / "update.h5", tmp_path / "update.h5")
    assert Update.read(tmp_path / "update.h5").protocol == update.protocol


@pytest.mark.parametrize("defense", ["topk+keep=0.2", "gaussian+std=1e-3", "low_rank+rank=2"])
def test_a_defense_does_not_explain_another_training(
    elsewhere: Elsewhere, tmp_path: Path, defense: str
) -> None:
    defend_elsewhere(elsewhere, defense)
    cell = elsewhere.cell(defense=defense, local_lr=0.3)
    found = imported(cell, elsewhere.files, tmp_path)
    assert not found.agrees
    assert "differs for 2 of 2 clients" in describe_agreement(found, cell.captured)


def test_noise_that_was_not_added_is_missed(elsewhere: Elsewhere, tmp_path: Path) -> None:
    cell = elsewhere.cell(defense="gaussian+std=1e-2")
    found = imported(cell, elsewhere.files, tmp_path)
    assert not found.agrees
    assert "less noise than the defence adds" in describe_agreement(found, cell.captured)


def test_noise_that_dominates_is_said_to(elsewhere: Elsewhere, tmp_path: Path) -> None:
    defend_elsewhere(elsewhere, "gaussian+std=1")
    cell = elsewhere.cell(defense="gaussian+std=1")
    found = imported(cell, elsewhere.files, tmp_path)
    assert "noise dominates the updates" in describe_agreement(found, cell.captured)
    assert found.agrees


def test_names_that_no_parameter_has_are_refused(elsewhere: Elsewhere, tmp_path: Path) -> None:
    cell = elsewhere.cell(defense="flare_exclude+pattern=fc")
    with pytest.raises(IncompatibleError, match="no parameter matches fc"):
        imported(cell, elsewhere.files, tmp_path)


def test_values_that_the_given_defense_does_not_send_are_refused(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match=r"capture mine: .*: its values are no multiples"):
        imported(elsewhere.cell(defense="qsgd"), elsewhere.files, tmp_path)


@pytest.mark.parametrize("defense", ["fedcdp", "secure_aggregation+clients=3", "soteria"])
def test_defenses_that_change_the_training_are_not_known(
    elsewhere: Elsewhere, defense: str
) -> None:
    with pytest.raises(
        IncompatibleError, match=f"defense {re.escape(defense)} changes the training"
    ):
        elsewhere.cell(defense=defense)


BUILT = {
    "sgd+momentum=0.9": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


@pytest.mark.parametrize("said", ["sgd", "adamw~weight_decay=0"])
@pytest.mark.parametrize("name", BUILT)
def test_the_optimizer_that_explains_the_updates_best_is_found(
    elsewhere: Elsewhere, tmp_path: Path, name: str, said: str
) -> None:
    """RMSprop is none of those that are tried, and none explains it."""
    for file, samples in zip(elsewhere.files.sent, elsewhere.truth, strict=True):
        network = copy.deepcopy(elsewhere.network)
        optimizer = BUILT[name](network.parameters())
        for _ in range(elsewhere.steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(samples[0]), samples[1]).backward()
            optimizer.step()
        save_file(network.state_dict(), file)
    cell = elsewhere.cell(optimizer=said, local_lr=0.3)
    capture = imported(cell, elsewhere.files, tmp_path)
    assert not capture.agrees
    lines = describe_capture(cell, capture, Path("out"), {})
    if name == "rmsprop":
        assert re.search(r"fits (best, at the rate .*|better at any rate)\)", lines)
        return
    best = capture.comparison.fits[0]
    assert best.agrees
    assert best.rate == pytest.approx(0.01 if name == "adam" else 0.05, rel=0.02)
    if (name, said) != ("adam", "adamw~weight_decay=0"):
        assert str(best.optimizer) == name
        assert f"they agree with --optimizer {name.replace('+', '~')} --local-lr" in lines


def test_of_a_kept_state_no_optimizer_is_sought(elsewhere: Elsewhere, tmp_path: Path) -> None:
    cell = elsewhere.cell(optimizer="adam", state="kept")
    capture = imported(cell, elsewhere.files, tmp_path)
    assert not capture.agrees and not capture.comparison.fits
    assert "state of an earlier round (state=kept)" in describe_capture(
        cell, capture, Path("o"), {}
    )


def test_swapped_states_are_recognised(elsewhere: Elsewhere, tmp_path: Path) -> None:
    (after, *_), before = elsewhere.files.sent, elsewhere.files.before
    swapped = Files(after, [before], elsewhere.files.truth[:1])
    found = imported(elsewhere.cell(victims=1), swapped, tmp_path).comparison
    assert not found.agrees and found.factor < 0


def test_a_missing_folder_or_dataset_is_named(elsewhere: Elsewhere, tmp_path: Path) -> None:
    cell = elsewhere.cell()
    with pytest.raises(DataError, match=r"typo: no such folder for captures; .*mkdir -p"):
        imported(cell, elsewhere.files, tmp_path / "typo")
    assert not (tmp_path / "typo").exists()
    cell = replace(cell, specs={**cell.specs, "dataset": parse("dataset", "folder+folder=mine")})
    with pytest.raises(GleakError, match="put images into"):
        imported(cell, elsewhere.files, tmp_path)


@pytest.fixture
def partly_frozen(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The model freezes all but its classifier; names of what is trained."""
    kind = type(parse("model", elsewhere.cell().strings()["model"]))
    build = kind.build

    def frozen(*arguments: object) -> nn.Module:
        network = build(*arguments).requires_grad_(False)
        network[-1].requires_grad_(True)
        return network

    monkeypatch.setattr(kind, "build", frozen)
    network = frozen(elsewhere.cell().model, (1, 8, 8), 10)
    return {name for name, value in network.named_parameters() if value.requires_grad}


def test_of_a_model_with_frozen_parameters_only_trained_ones_are_taken(
    elsewhere: Elsewhere, partly_frozen: set[str], tmp_path: Path
) -> None:
    frozen = load_file(elsewhere.files.before)
    frozen = {name: value for name, value in frozen.items() if name not in partly_frozen}
    for file in elsewhere.files.sent:
        elsewhere.spoil(file, lambda state: state | frozen)
    files = replace(elsewhere.files, truth=())
    update = Update.read(imported(elsewhere.cell(), files, tmp_path).folder / "update.h5")
    assert update.update.keys() == partly_frozen


def test_a_frozen_parameter_that_was_trained_elsewhere_is_named(
    elsewhere: Elsewhere, partly_frozen: set[str], tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match=r"after-0.*0\.weight differs .* the model freezes it"):
        imported(elsewhere.cell(), elsewhere.files, tmp_path)


FIELDS = {"victims": 2, "batch_size": "4", "local_lr": "0.1", "sends": "weights"}
AGREED = UpdateComparison((1e-6, 1e-7), 1)


def described(comparison: UpdateComparison | None, recorded: bool = False, **config: str) -> str:
    cell = captured_cell("hand", "digits", "lenet", **FIELDS)
    capture = Capture(Path("data/hand"), comparison, recorded=recorded)
    return describe_capture(cell, capture, Path("out"), config)


@pytest.mark.parametrize(
    ("comparison", "file"), [(AGREED, "scores.csv"), (None, "reconstruction.h5")]
)
def test_what_it_says_to_ask_for_is_a_cell(comparison: UpdateComparison | None, file: str) -> None:
    *_, command = described(comparison).splitlines()
    words = command.split()
    assert words[0] == "snakemake"
    root, artifacts, *levels, last = words[1].split("/")
    assert (root, artifacts, last) == ("out", "artifacts", file)
    cell = Cell.from_path(dict(zip(LEVELS, levels, strict=True)))
    assert str(cell.client) == "captured+victims=2+batch_size=4+local_lr=0.1+capture=hand"


def test_a_configuration_given_otherwise_is_given_on() -> None:
    both = described(None, data_dir="my data; ls", captures_dir="sent")
    assert both.endswith("h5 --config 'data_dir=my data; ls' captures_dir=sent")


@pytest.mark.parametrize(
    ("comparison", "warning"),
    [
        (
            UpdateComparison((0.5, 1e-6), 0.8),
            "1 of 2 updates differ .* by up to 50% of their norm: .*check batch size.*"
            r"best factor: 0\.8; neither sgd nor one of sgd, .* fits better at any rate\)",
        ),
        (
            UpdateComparison((9, 9), 10, (Fit(SGD(), 1.0, 1e-6),)),
            "2 of 2 updates.* by up to 900%.*they agree with --local-lr 1 ",
        ),
        (UpdateComparison((2, 2), -1), ".*opposite direction; check that --before and --after"),
    ],
)
def test_an_update_that_the_truth_does_not_give_is_a_warning(
    comparison: UpdateComparison, warning: str
) -> None:
    _, line, *_ = described(comparison).splitlines()
    assert re.match(f"warning: {warning}", line)
    assert "warning" not in described(AGREED)


MOMENTUM = parse("client_optimizer", "sgd+momentum=0.9")


@pytest.mark.parametrize("fits", [(Fit(MOMENTUM, 0.01, 0.0), Fit(SGD(), 0.09, 0.01))])
def test_of_a_recorded_rate_another_factor_of_the_loss_is_the_cause(fits: tuple[Fit, ...]) -> None:
    comparison = UpdateComparison((0.1, 0.1), 0.9, fits)
    warning = described(comparison, recorded=True)
    assert "agree if the loss of the training was about 0.9 times the mean cross-entropy" in warning
    for cause in ("--label-smoothing", "class weights", "a sum over samples or accumulated"):
        assert cause in warning
    assert "--local-lr" not in warning
    both = described(replace(comparison, fits=fits[1:]))
    assert "agree with --local-lr 0.09 in place of" in both
    assert "about 0.9 times the mean cross-entropy" in both


@pytest.mark.parametrize(("metadata", "recorded"), [({"local_lr": "0.2"}, True), (None, False)])
def test_a_rate_is_recorded_if_the_file_contains_it(
    elsewhere: Elsewhere, tmp_path: Path, metadata: dict[str, str] | None, recorded: bool
) -> None:
    for file in elsewhere.files.sent:
        save_file(load_file(file), file, metadata)
    cell = elsewhere.cell(local_lr=0.2)
    capture = imported(cell, elsewhere.files, tmp_path)
    text = describe_capture(cell, capture, Path("out"), {})
    assert "about 0.5 times the mean cross-entropy" in text
    assert ("--local-lr" in text) is not recorded


@pytest.mark.parametrize("optimizer", ["adam", "sgd+momentum=0.9"])
def test_a_recorded_rate_and_optimizer_are_not_doubted(optimizer: str) -> None:
    fit = Fit(parse("client_optimizer", optimizer), 0.09, 0.01)
    warning = described(UpdateComparison((0.1, 0.1), 0.9, (fit,)), recorded=True)
    assert "--local-lr" not in warning
    assert "attacks assume the training as given" in warning


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"local_lr": None}, SpecError, "--local-lr is missing"),
        ({"local_steps": "x"}, SpecError, "'local_steps' = 'x'"),
        ({"batch_size": "3", "mini_batch": "4"}, SpecError, "more than the 3 samples"),
        ({"name": "x" * 250}, SpecError, "more than the 255 of a folder"),
        ({"name": "../a"}, SpecError, "'capture'"),
        ({"dataset": "digts"}, SpecError, "did you mean 'digits'"),
        ({"dataset": "breast_cancer"}, IncompatibleError, "takes image data"),
    ],
)
def test_what_cannot_be_a_cell_is_refused(
    changes: dict[str, str], error: type[Exception], message: str
) -> None:
    given = {"name": "hand", "dataset": "digits", "model": "lenet", **FIELDS, **changes}
    with pytest.raises(error, match=message):
        captured_cell(**{key: value for key, value in given.items() if value is not None})


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.floats(1e-8, 1e3), st.booleans())
def test_whatever_the_protocol_its_cell_is_read_back_from_its_path(
    victims: int, size: int, steps: int, lr: float, weights: bool
) -> None:
    fields = {"victims": victims, "batch_size": size, "local_steps": steps, "local_lr": lr}
    sends = "weights" if weights else "gradient"
    cell = captured_cell("hand", "digits", "lenet", sends=sends, **fields)
    read = Cell.from_path(dict(zip(LEVELS, str(cell).split("/"), strict=True)))
    assert read == cell
    assert read.client.protocol.content == ("difference" if weights else "gradient")
    assert {name: getattr(read.client, name) for name in fields} == fields


def test_gradients_need_no_learning_rate() -> None:
    cell = captured_cell("hand", "digits", "lenet", batch_size="4", sends="gradient")
    assert cell.client.protocol.content == "gradient"


def freeze_elsewhere(elsewhere: Elsewhere, *names: str) -> None:
    """Undo the training of layers, which the model's function does not freeze."""
    before = load_file(elsewhere.files.before)
    for file in elsewhere.files.sent:
        elsewhere.spoil(file, lambda state: state | {name: before[name] for name in names})


def test_without_truth_layers_that_the_training_froze_are_named(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    freeze_elsewhere(elsewhere, "0.weight", "0.bias")
    cell = elsewhere.cell()
    capture = imported(cell, replace(elsewhere.files, truth=()), tmp_path)
    assert not capture.agrees
    assert (capture.folder / "update.h5").is_file()
    text = describe_capture(cell, capture, Path("out"), {})
    assert "warning: the update of 0.weight, 0.bias is zero in all clients" in text


@pytest.mark.parametrize(("layer", "agrees"), [("0", True), ("7", False)])
def test_with_truth_layers_that_the_training_froze_are_the_first_cause(
    elsewhere: Elsewhere, tmp_path: Path, layer: str, agrees: bool
) -> None:
    """They are named even if their share of the update is small."""
    names = f"{layer}.weight", f"{layer}.bias"
    freeze_elsewhere(elsewhere, *names)
    cell = elsewhere.cell()
    capture = imported(cell, elsewhere.files, tmp_path)
    assert (capture.comparison.unmoved, capture.agrees) == (names, agrees)
    text = describe_capture(cell, capture, Path("out"), {})
    before = "\nwarning: " if agrees else "of their norm: "
    assert f"{before}{', '.join(names)} did not move in any update" in text
    assert "requires_grad_(False)" in text
