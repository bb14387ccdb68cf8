"""What the API accepts, and a table of misuses that it refuses before any work."""

from __future__ import annotations

import copy
import re
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gleak
from gleak.core.errors import ArtifactError, GleakError, IncompatibleError, SpecError
from gleak.core.registry import parse

SHAPE, CLASSES, LR = (3, 4, 4), 4, 0.1
Values = dict[str, Tensor]


@cache
def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.Sigmoid(), nn.Linear(8, CLASSES))


@cache
def normalised() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, CLASSES)
        return nn.Sequential(*layers).eval()


def images(count: int = 2) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))


@cache
def update() -> Values:
    return gleak.compute_update(model(), images(), [0, 2])


def with_bias(value: Any) -> dict[str, Any]:
    return {**update(), "3.bias": value}


def after(value: Any) -> Any:
    return measured(after={**state(), "3.bias": value})


def attack(spec: str = "aono", gradients: Any = None, network: Any = None, **known: Any) -> Any:
    known = {"shape": SHAPE, "batch_size": 2, **known}
    given = update() if gradients is None else gradients
    return gleak.attack(spec, network or model(), given, **known)


def inverted(**known: Any) -> Any:
    return attack("invertgrad+iterations=1", **known)


def granted(spec: str = "invertgrad+iterations=1", **grants: Any) -> Any:
    return attack(spec, grants=grants)


def computed(inputs: Any = None, labels: Any = (0, 2), network: Any = None, **known: Any) -> Any:
    return gleak.compute_update(
        network or model(), images() if inputs is None else inputs, labels, **known
    )


def state() -> Values:
    return {name: value.clone() for name, value in model().state_dict().items()}


@cache
def gauge() -> gleak.Gauge:
    return gleak.Gauge(model(), SHAPE, batch_size=2, local_lr=LR)


def measured(before: Any = None, after: Any = None, truth: Any = None) -> Any:
    return gauge()(before or state(), state() if after is None else after, truth)


@cache
def found() -> Any:
    return inverted(labels=[0, 2])


def flat(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), *layers)


class OnMeta(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(48, 4, device="meta")


def loader() -> Any:
    return DataLoader(TensorDataset(images(), torch.tensor([0, 2])), batch_size=2)


@cache
def convolutional() -> nn.Module:
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def fished(network: nn.Module, target: int = 0, **changes: Any) -> Any:
    """Attack with the secret of a crafted network, or what is left of it."""
    secret = gleak.craft(f"fishing+target={target}", network, SHAPE).secret
    return attack("fishing+iterations=1", secret=replace(secret, **changes))


def read_by_mkor(crafted: nn.Module, seed: int, network: nn.Module) -> Any:
    update = gleak.compute_update(network, images(), [0, 2])
    secret = gleak.craft("mkor", crafted, SHAPE, seed=seed).secret
    return attack("mkor", update, network, secret=replace(secret, seed=0))


def masked() -> Any:
    return np.ma.masked_array(update()["3.bias"].numpy(), mask=[0, 1, 0, 0])


FULL = torch.full
MISUSES: dict[type[GleakError], list[tuple[Callable[[], Any], str]]] = {
    SpecError: [
        (lambda: attack(labels=[0, 2]), "takes no labels"),
        (lambda: attack(shape=48), "shape = 48: expected positive whole"),
        (lambda: attack(shape=(3, 4.0, 4)), "(channels, height, width)"),
        (lambda: attack(shape=torch.tensor(SHAPE, device="meta")), "shape = tensor("),
        (lambda: attack(shape=(10**30,)), "expected at most 268435456 values in a sample"),
        (lambda: gleak.Gauge(model(), "3", 2, LR), "shape = '3': expected positive whole"),
        (lambda: attack(seed=-1), "seed = -1: expected a whole number of at least 0"),
        (lambda: computed(seed=1.0), "seed = 1.0"),
        (lambda: gleak.audit(model(), shape=SHAPE, seed="1"), "seed = '1'"),
        (lambda: gleak.defend("topk", update(), seed=True), "seed = True"),
        (lambda: attack(batch_size=0), "field 'batch_size' = 0"),
        (lambda: attack(batch_size=10**30), "expected at most 2147483647"),
        (lambda: attack(batch_size=True), "batch_size = True"),
        *[
            (partial(lambda given: attack(batch_size=None, client=given), given), words)
            for given, words in [
                ("fedavgs", "unknown client 'fedavgs'; did you mean 'fedavg'"),
                ("fedavg+local_step=2", "did you mean 'local_steps'"),
                ("fedavg+sends=weights+local_lr=1e-60", "field 'local_lr' = '1e-60': "),
                ("fedavg+sends=weights", "local_lr is missing, by which a difference of weights"),
                ("fedavg+batch_size=3+mini_batch=4+local_steps=3", "mini_batch=4 is more than"),
                (gleak.Protocol(local_lr=-1), "field 'local_lr' = -1"),
                (gleak.Protocol(local_steps=2, mini_batch=6, batch_size=5), "mini_batch=6"),
                (5, "expected the spec of kind client"),
            ]
        ],
        (lambda: attack(client="fedsgd+batch_size=3"), "batch_size = 2, but client fedsgd"),
        (
            lambda: attack(local_steps=2, local_lr=0.1),
            "local_steps, local_lr: now part of the client's spec; give "
            "client='fedavg+local_steps=2+local_lr=0.1'",
        ),
        (lambda: computed(loss="nll_raw"), "give client='fedavg+loss=nll_raw'"),
        (lambda: computed(mini_batch=2), "give client='fedavg+mini_batch=2'"),
        (
            lambda: computed(loss="bce"),
            "loss: now part of the client's spec: client 'fedavg': field",
        ),
        (lambda: gleak.defend("topk", update(), sends="weights"), "+sends=weights', or add it"),
        (lambda: gleak.Gauge(model(), SHAPE, 2, LR, mini_batch=1), "mini_batch: now part of the"),
        (lambda: gleak.Gauge(model(), SHAPE), "batch_size is missing"),
        (lambda: gleak.Gauge(model(), SHAPE, 2, LR, 1.5), "local_steps = 1.5"),
        *[
            (partial(gleak.Gauge, model(), SHAPE, 2, rate), "local_lr = ")
            for rate in ("0.1", [0.1, 0.2], float("nan"), 10**400)
        ],
        (lambda: gleak.Gauge(model(), SHAPE, 2, client="fedavg"), "local_lr is missing, by which"),
        (lambda: gleak.Gauge(model(), SHAPE, 2, LR, client="fedavg"), "fields of the client"),
        (lambda: attack("invertgrad+labels=argmin", labels=[0, 2]), "infers labels, but labels"),
        (lambda: attack("cpll"), "unknown attack 'cpll'; did you mean 'cpl'"),
        (lambda: attack(3), "expected the spec of kind attack"),
        (lambda: gleak.defend(parse("attack", "aono"), update()), "of kind defense"),
        (lambda: gleak.craft("mkorr", model(), SHAPE), "did you mean 'mkor'"),
        (lambda: gleak.list_specs(["attack"]), "unknown kind ['attack']"),
        (lambda: gleak.audit(None), "the model is a NoneType, not a torch.nn.Module"),
        (lambda: attack(network=OnMeta), "the class OnMeta; give an instance"),
        (lambda: granted(mean=images(1)[0]), "did you mean 'mean_input'"),
        (lambda: attack(grants={1: 2}), "unknown grant 1; valid: "),
        (lambda: attack(grants=["mean_input"]), "grants is a list"),
        (lambda: inverted(labels=[0, 2], grants={"labels": [1, 3]}), "labels are given twice"),
        (lambda: attack(secret=gleak.craft("fishing", model(), SHAPE)), "secret is a CraftedModel"),
        *[
            (partial(lambda given: attack(knowledge=given), given), f"knowledge = {given!r}: ")
            for given in (3, None, [None], b"/tmp")
        ],
        (lambda: gleak.score(images(), images(), [0, 1]), "leave labels out"),
        (lambda: gleak.audit(model(), images()), "inputs and labels, or neither"),
        (lambda: gleak.Gauge(model(), SHAPE, 2, None), "local_lr is missing"),
    ],
    ArtifactError: [
        (lambda: inverted(labels=1), "labels: shape (), expected (N,)"),
        (lambda: inverted(labels=torch.eye(4)[:2].long()), "one-hot rows give argmax(1)"),
        (lambda: inverted(labels=[], batch_size=None), "labels: shape (0,)"),
        (lambda: inverted(labels=["cat", "dog"]), "labels: not a tensor"),
        (lambda: computed(labels=[0, -1]), "from -1 to 0, expected"),
        (lambda: computed(labels=[0, 4]), "expected classes 0 to 3"),
        (lambda: computed(labels=np.array([0, 2**63], np.uint64)), "labels: torch.uint64"),
        (lambda: computed(labels=[0j, 1j]), "labels: values of type torch.complex"),
        (lambda: computed(labels=[0]), "expected (2,): one for each sample"),
        (lambda: computed(labels=b"\0\2"), "np.frombuffer makes an array of them"),
        (lambda: attack(gradients=list(model().parameters())), "these are the parameters of the"),
        (lambda: attack(gradients=state()), "with client='fedavg+sends=weights+local_lr=0.1'"),
        (lambda: attack(gradients={k: 1.01 * v for k, v in state().items()}), "are the parameters"),
        (
            lambda: attack(gradients=normalised().state_dict(), network=normalised()),
            "1.running_mean is a buffer, so this is a state dict",
        ),
        (lambda: gleak.defend("topk", list(model().parameters())), "give the parameter's grad"),
        (lambda: attack(gradients=with_bias([1j] * 4)), "3.bias: values of type torch.complex64"),
        (lambda: attack(gradients=with_bias(FULL((4,), torch.nan))), "NaN or infinite"),
        (lambda: gleak.defend("topk", [FULL((4,), torch.inf)]), "NaN or infinite"),
        (lambda: attack(gradients=with_bias(torch.ones(5))), "3.bias has shape (5,)"),
        (lambda: attack(gradients={**update(), "head.bias": torch.ones(4)}), "head.bias has shape"),
        (lambda: attack(gradients=[torch.ones(8)]), "1 tensors, but the model has 4"),
        (lambda: attack(gradients=torch.ones(4)), "not Tensor"),
        (lambda: attack(gradients={1, 2}), "not set"),
        *[
            (partial(attack, client=f"fedavg+sends=weights+local_lr={rate}"), words)
            for rate, words in [("1e-40", "out of the range of float32"), ("1e300", "check local_")]
        ],
        (
            lambda: attack(gradients={k: v for k, v in update().items() if k != "3.bias"}),
            "gradients: 3.bias is missing, but in the model it has shape (4,)",
        ),
        (lambda: computed(client="fedsgd+batch_size=3"), "inputs: 2 samples, but client fedsgd"),
        (lambda: measured(truth=images()), "truth: expected the pair of inputs and labels"),
        (lambda: computed(images() > 0.5), "inputs: torch.bool values from False to True"),
        (lambda: attack(gradients=with_bias(masked())), "a masked array"),
        (lambda: attack(gradients=with_bias(torch.ones(4, device="meta"))), "3.bias: not a tensor"),
        (lambda: gleak.defend("topk", {}), "no tensors"),
        (lambda: gleak.defend("topk", torch.ones(3)), "not Tensor"),
        (
            lambda: gleak.defend("threshold", [torch.ones(3)], memory={"0": torch.ones(4)}),
            "memory: 0 has shape (4,), but in this update (3,)",
        ),
        (lambda: gleak.defend("threshold", [torch.ones(3)], memory=[]), "memory is a list"),
        (lambda: inverted(sent={"3.bias": torch.ones(5)}), "sent: 3.bias: a mask of shape (5,)"),
        (lambda: inverted(sent={"bias": torch.ones(4)}), "sent: unknown parameter 'bias'"),
        (lambda: inverted(sent={3: torch.ones(4), "a": [1]}), "sent: unknown parameter 3; valid: "),
        (lambda: inverted(sent={"3.bias": [0, 1, 2, 3]}), "other than true and false"),
        (lambda: inverted(sent={"3.bias": torch.zeros(4)}), "leaves out values that are not zero"),
        (lambda: granted(mean_input=FULL(SHAPE, torch.nan)), "torch.float32 values from nan"),
        (lambda: granted(mean_input=FULL(SHAPE, 128.0)), "grant mean_input: torch.float32 values"),
        (lambda: granted(mean_input=torch.zeros(4, 4)), "expected samples of (3, 4, 4)"),
        (lambda: granted(class_sample=images(3)), "3 rows, expected 2: one for each sample"),
        (lambda: granted(embeddings=torch.ones(2, 7)), "expected finite values of shape (2, 48)"),
        (lambda: granted(embeddings=FULL((2, 48), torch.inf)), "expected finite values"),
        (lambda: granted(auxiliary_inputs=2 + images()), "grant auxiliary_inputs: torch.float32"),
        (lambda: granted(auxiliary_inputs=images(), auxiliary_labels=[0]), "one label for each"),
        (
            lambda: attack(
                "invertgrad",
                computed(network=normalised()),
                normalised(),
                grants={"batch_norm_statistics": -torch.ones(2, 2)},
            ),
            "negative variances",
        ),
        (lambda: fished(model(), values={}), "crafting fishing: target is not that of this"),
        (lambda: fished(model(), values=None), "its values are not arrays by name"),
        (lambda: fished(model(), spec=None), "secret: its spec is not a text"),
        (lambda: fished(model(), values={"target": np.array([-1])}), "target is not that of"),
        (lambda: fished(model(), values={"target": np.array(["a"])}), "secret: /values/target"),
        (lambda: read_by_mkor(convolutional(), 1, convolutional()), "give the secret and the netw"),
        (lambda: attack(knowledge="missing.h5"), "missing.h5"),
        (lambda: attack(knowledge="a" * 5000), "cannot be read (File name too long)"),
        (lambda: found().save(None), "path = None: expected the path of a file that ends in .png"),
        *[
            (partial(lambda name: found().save(name), name), f"path = {name!r}: expected")
            for name in ("a\0.png", "a.exe", "a")
        ],
        (lambda: computed((255 * images()).byte()), "divide bytes by 255"),
        (lambda: computed(images() - 0.5), "belongs into the model"),
        (lambda: computed(images(1).flatten(), [0]), "expected (N, *shape)"),
        (lambda: computed(loader()), "inputs: not a tensor of numbers"),
        (lambda: gleak.score(loader().dataset, images()), "found: not a tensor"),
        (lambda: computed([images(1)[0], images(1)[0][:, :2]]), "inputs: not a tensor of numbers"),
        (lambda: gleak.score(images(), images().permute(0, 2, 3, 1)), "the channels are last"),
        (lambda: gleak.score(images(), images(1)[0]), "give one sample as a batch, inputs[None]"),
        (lambda: gleak.score(found(), images(3)), "assumed a client with batch_size=2"),
        (lambda: found().save("found.png", truth=images()[:, :, :2]), "truth: shape (2, 3, 2, 4)"),
        (lambda: gleak.audit(model(), images(), [0, 1], shape=(3, 5, 5)), "expected (N, 3, 5, 5)"),
        (lambda: gleak.batch_norm_statistics(normalised(), 255 * images()), "ities in [0, 1]"),
        (lambda: after(torch.ones(5)), "after: 3.bias has shape (5,)"),
        (lambda: measured(before={**state(), "3.bias": torch.ones(5)}), "before: not a state dict"),
        (lambda: measured(after=list(state().values())), "after: not a state dict"),
        (lambda: measured(after={}), "after: 1.weight is missing"),
        (lambda: after(FULL((4,), torch.nan)), "NaN or infinite"),
        (lambda: measured(truth=(images(3), [0, 1, 2])), "3 samples, but the gauge was made for"),
    ],
    IncompatibleError: [
        (lambda: attack(client="epochs"), "sends the updates of 2 rounds, and this"),
        (lambda: attack(client=gleak.Protocol(batch_size=2, epochs=2)), "a client of 2 epochs"),
        (lambda: attack(shape=(2, 3, 4, 4)), "does not accept samples of shape (2, 3, 4, 4)"),
        (lambda: attack(network=normalised(), shape=(4, 4, 3)), "permute(0, 3, 1, 2)"),
        (lambda: gleak.defend("soteria", update()), "gleak.compute_update("),
        (lambda: attack(network=flat()), "has no parameters"),
        (lambda: attack(network=flat(nn.LazyLinear(4))), "is not initialised"),
        (lambda: attack(network=OnMeta()), "layer.weight of the model is on the device meta"),
        (lambda: attack(network=flat(nn.Linear(5, 4))), "does not accept samples"),
        (
            lambda: attack(network=flat(nn.Linear(48, 4)).requires_grad_(False)),
            "no parameter that requires a gradient",
        ),
        (lambda: attack(network=nn.Linear(48, 4), shape=(48,)), "wrap it in torch.nn.Sequential"),
        (
            lambda: computed(labels=[0, 0], network=flat(nn.Linear(48, 1))),
            "has one logit z, whose cross_entropy is zero for every sample; if it is trained",
        ),
        (lambda: gleak.defend("topk", update(), memory={}), "keeps no values for later rounds"),
        (lambda: gleak.defend("gaussian+std=1e300", [torch.ones(3)]), "exceed the range"),
        (lambda: gleak.defend("qsgd+norm=l2", [FULL((3,), 3e38)]), "scale the update"),
        (
            lambda: fished(flat(nn.Linear(48, 9)), target=8),
            "target=8 is no class of the model, which has 4; choose 0 to 3",
        ),
        (lambda: read_by_mkor(convolutional(), 0, model()), "no convolutions before dense"),
        (lambda: granted(batch_norm_statistics=torch.ones(2, 2)), "leave the grant out"),
        (lambda: attack("blind"), "grants that are not given: mean_input"),
        (
            lambda: computed(images().permute(0, 2, 3, 1), network=normalised()),
            "inputs.permute(0, 3, 1, 2)",
        ),
    ],
    GleakError: [
        (lambda: attack(device="cuda:x"), "unknown device 'cuda:x'"),
        (lambda: attack(device="cuda:99"), "device 'cuda"),
    ],
}


CASES = [(error, *misuse) for error, misuses in MISUSES.items() for misuse in misuses]


@pytest.mark.parametrize(("error", "misuse", "words"), CASES, ids=[words for *_, words in CASES])
def test_a_misuse_is_refused_in_words(
    error: type[GleakError], misuse: Callable[[], Any], words: str
) -> None:
    """By an error of gleak that names the argument, what was given, and what to do."""
    with pytest.raises(error, match=re.escape(words)):
        misuse()


def negative(value: Tensor) -> Tensor:
    """Return the same values in a tensor whose negative bit is set."""
    found = torch.complex(torch.zeros_like(value), -value).conj().imag
    assert found.is_neg()
    return found


def expected() -> Tensor:
    return found().inputs


@pytest.mark.parametrize(
    "labels",
    [
        (2, 0),
        *(np.array([0, 2], kind) for kind in (">i2", "u2", "u8", "i8", object)),
        torch.tensor([2, 0], dtype=torch.uint8),
        [torch.tensor(0), np.uint8(2)],
        range(0, 3, 2),
        {"first": 0, "second": 2}.values(),
        (label for label in (0, 2)),
    ],
    ids=lambda value: f"{type(value).__name__} {getattr(value, 'dtype', '')}",
)
def test_labels_come_in_any_integer_form(labels: Any) -> None:
    assert torch.equal(inverted(labels=labels, batch_size=None).inputs, expected())


@pytest.mark.parametrize("labels", [[False, True], np.array([False, True])])
def test_labels_of_two_classes_may_be_truth_values(labels: Any) -> None:
    assert torch.equal(computed(labels=labels)["3.bias"], computed(labels=[0, 1])["3.bias"])


@pytest.mark.parametrize(
    "known",
    [
        {"shape": list(SHAPE)},
        {"shape": np.array(SHAPE)},
        {"shape": torch.tensor(SHAPE)},
        {"device": torch.device("cpu", 0)},
        {"seed": np.uint8(0)},
        {"seed": torch.tensor(0)},
        {"batch_size": np.int32(2)},
        {"batch_size": torch.tensor(2)},
    ],
    ids=str,
)
def test_numbers_come_in_any_form(known: dict[str, Any]) -> None:
    assert torch.equal(inverted(labels=[0, 2], **known).inputs, expected())


@pytest.mark.parametrize(
    "form",
    [
        lambda values: OrderedDict(reversed(values.items())),
        lambda values: (value for value in values.values()),
        lambda values: values.values(),
        lambda values: [value.double() for value in values.values()],
        lambda values: [value.numpy().astype(">f4") for value in values.values()],
        lambda values: [value.tolist() for value in values.values()],
        lambda values: [value.to_sparse() for value in values.values()],
        lambda values: [value.clone().requires_grad_() * 1 for value in values.values()],
        lambda values: [negative(value) for value in values.values()],
        lambda values: [value.numpy().astype(np.longdouble) for value in values.values()],
    ],
)
def test_gradients_come_in_any_form(form: Callable[[Values], Any]) -> None:
    assert torch.equal(inverted(labels=[0, 2], gradients=form(update())).inputs, expected())


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_taken_as_single(kind: torch.dtype) -> None:
    halved = {name: value.to(kind) for name, value in update().items()}
    single = {name: value.float() for name, value in halved.items()}
    found = [inverted(labels=[0, 2], gradients=each).inputs for each in (halved, single)]
    assert torch.equal(*found)
    network = copy.deepcopy(model()).to(kind)
    assert computed(network=network)["3.bias"].dtype == torch.float32


@pytest.mark.parametrize(
    "form",
    [
        Tensor.tolist,
        list,
        lambda inputs: [each.numpy() for each in inputs],
        iter,
        lambda inputs: inputs.numpy()[:, :, ::-1][:, :, ::-1],
        Tensor.double,
        Tensor.to_sparse,
        negative,
        deque,
        lambda inputs: inputs.numpy().astype(np.longdouble),
        lambda inputs: inputs.numpy().astype(object),
    ],
)
def test_samples_come_in_any_form(form: Callable[[Tensor], Any]) -> None:
    torch.testing.assert_close(computed(form(images())), dict(update()), rtol=0, atol=0)
    assert gleak.score(images(), form(images()))["mse"] == 0


@pytest.mark.parametrize("spec", ["qsgd", "quantize", "low_rank", "topk", "threshold", "dp"])
def test_empty_tensors_are_sent_as_they_are(spec: str) -> None:
    filled = torch.tensor([1.0, -3.0])
    found = gleak.defend(spec, {"empty": torch.zeros(0, 3), "filled": filled})
    assert found["empty"].shape == (0, 3)
    assert torch.equal(found["filled"], gleak.defend(spec, {"filled": filled})["filled"])
    assert gleak.defend(spec, [torch.zeros(0)])[0].shape == (0,)


@pytest.mark.parametrize("kind", [torch.int32, torch.bool])
def test_noise_on_integers_is_not_truncated(kind: torch.dtype) -> None:
    whole = torch.tensor([1, 0, 1], dtype=kind)
    found = gleak.defend("gaussian+std=0.1", [whole, whole.numpy()])
    assert found[0].dtype == torch.float32
    assert found[1].dtype == np.float32
    assert torch.equal(found[0], gleak.defend("gaussian+std=0.1", [whole.float()])[0])


def test_a_named_tuple_stays_one() -> None:
    Pair = namedtuple("Pair", ["weight", "bias"])
    found = gleak.defend("topk+keep=0.5", Pair(torch.tensor([1.0, 2.0]), None))
    assert isinstance(found, Pair)
    assert found.weight.tolist() == [0, 2]
    assert found.bias is None


def test_modes_of_the_caller_change_nothing() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        assert torch.equal(inverted(labels=[0, 2]).inputs, expected())
        assert torch.equal(computed()["1.weight"], update()["1.weight"])
        low_rank = gleak.defend("low_rank", update())
        assert measured(truth=(images(), [0, 2]))["gleak-alarms"] == 0
    torch.set_default_device("meta")
    try:
        again = inverted(labels=[0, 2])
        masked_at_random = gleak.defend("random_mask", update())
    finally:
        torch.set_default_device(None)
    assert torch.equal(again.inputs, expected())
    for spec, sent in {"low_rank": low_rank, "random_mask": masked_at_random}.items():
        torch.testing.assert_close(sent, gleak.defend(spec, update()), rtol=0, atol=0)
