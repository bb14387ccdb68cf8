"""Components of the gradient matching attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gleak.attacks.agic import AGIC, AGICEpochs
from gleak.attacks.matching_attack import MatchingAttack
from gleak.attacks.rog import ROG
from gleak.core.errors import IncompatibleError
from gleak.core.registry import load, parse
from gleak.data.bundled import Digits

if TYPE_CHECKING:
    from gleak.data.base import DatasetSpec

OF_EPOCHS = set(AGICEpochs.model_fields) - set(AGIC.model_fields)
"""They say how several updates are paired and weighed; each of these has parts of its own."""
KNOWLEDGE = {"postprocessor", "codec"}
"""What these do is tested in tests/attacks/test_rog.py."""
OTHERS = (parse("model", "lenet"), parse("client", "fedsgd"))
SEVERAL = {"seeds", "result"}
"""How many searches there are and what is made of them
(tests/attacks/matching/test_several_seeds.py).
"""
AFTERWARDS = {
    "rog": {"tagger"},
    "rogs": {"generator", "generator_iterations", "generator_lr", "l2", "lpips", "tagger"},
}
"""They say what is made of the samples that were found, or how they are scored."""
MATCHING = sorted(name for name, cls in load("attack").items() if issubclass(cls, MatchingAttack))


@pytest.mark.parametrize("name", MATCHING)
def test_the_budget_reaches_the_engine(name: str) -> None:
    spec = parse("attack", f"{name}+iterations=7")
    parts = spec.parts()
    assert parts.iterations == 7
    afterwards = getattr(spec, "generator_iterations", 0)
    assert spec.cost().evaluations == 7 * parts.optimizer.evaluations_per_iteration + afterwards


@pytest.mark.parametrize("name", MATCHING)
def test_every_field_changes_the_parts(name: str) -> None:
    """A field that does nothing would lie in a path."""
    changes = {
        "iterations": "9",
        "threshold": "0.125",
        "restarts": "1",
        "patience": "2",
        "start": "uniform",
        "labels": "known",
        "distance": "signs",
        "code": "normalised",
        "finish": "stretched",
        "optimizer": "adam",
        "alpha": "0.5",
        "lr": "0.75",
        "tv": "0.25",
        "box": "false",
        "client_model": "unrolled",
        "compared": "all",
        "draws": "searched",
        "skip": "classifier",
        "beta": "3",
        "weights": "exponential",
        "relu_modifier": "false",
        "descent": "plain",
        "batch_norm": "0.5",
        "statistics": "granted",
    }
    if issubclass(load("attack")[name], ROG):
        changes |= {"client_model": "one_step", "start": "normal"}
    standard = parse("attack", name).parts()
    elsewhere = OF_EPOCHS | KNOWLEDGE | SEVERAL | AFTERWARDS.get(name, set())
    for field in set(load("attack")[name].model_fields) - elsewhere:
        assert parse("attack", f"{name}+{field}={changes[field]}").parts() != standard, field


def test_each_attack_finds_labels_in_its_own_way() -> None:
    rules = {name: parse("attack", name).parts().labels for name in ("dlg", "idlg", "cpl")}
    assert rules == {"dlg": "joint", "idlg": "sign", "cpl": "argmin"}


class DigitsToTestWith(Digits):
    """Digits of which none is for training."""

    @property
    def sizes(self) -> dict[str, int]:
        return {"train": 0, "test": 1797}


@pytest.mark.parametrize(
    ("start", "dataset", "fault"),
    [
        ("red", parse("dataset", "digits"), "digits holds images of 1 channel"),
        ("green", parse("dataset", "mnist"), "mnist holds images of 1 channel"),
        ("blue", parse("dataset", "breast_cancer"), "breast_cancer holds a table"),
        ("optimal", DigitsToTestWith(size=8), "digits+size=8 has no training samples"),
    ],
    ids=str,
)
def test_a_start_that_does_not_fit_is_named_with_its_attack(
    start: str, dataset: DatasetSpec, fault: str
) -> None:
    attack = parse("attack", f"cpl+start={start}")
    with pytest.raises(IncompatibleError) as caught:
        attack.check(dataset, *OTHERS)
    assert str(caught.value).startswith(f"attack cpl+start={start}: start {start} ")
    assert fault in str(caught.value)


@pytest.mark.parametrize("start", sorted(load("start")))
def test_every_start_serves_colour_images_with_training_samples(start: str) -> None:
    attack = parse("attack", f"cpl+start={start}")
    attack.check(parse("dataset", "photos"), *OTHERS)
    assert attack.grants == ({"class_sample"} if start == "optimal" else set())
