from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.knowledge.tagger import Tagger


def test_digits_are_among_their_own_tags(learn_digits: Callable, tmp_path: Path) -> None:
    network, _ = learn_digits(Tagger(width=8, steps=180, batch_size=32, lr=1e-2, tags=2))
    held_out = parse("dataset", "digits").load(tmp_path, 0)
    with torch.no_grad():
        tags = network.tags(torch.from_numpy(held_out.samples("test", slice(300))))
    assert tags.shape == (300, 2)
    assert (tags[:, 0] != tags[:, 1]).all()
    labels = torch.from_numpy(held_out.test_labels[:300])
    assert (tags == labels[:, None]).any(1).float().mean() > 0.7


def test_as_many_tags_as_classes_tell_nothing() -> None:
    with pytest.raises(
        IncompatibleError, match="assigns 10 tags to each image, but there are only 10 classes"
    ):
        Tagger(tags=10).check(parse("dataset", "digits"))
    with pytest.raises(IncompatibleError, match="there are only 3 classes; lower tags"):
        Tagger().build((3, 8, 8), 3)


def test_it_is_no_attackers() -> None:
    spec = parse("attack", "rogs+tagger=tagger~tags=2")
    assert [known.name for known in spec.knowledge] == ["generator"]
    assert [evaluator.name for evaluator in spec.evaluators] == ["tagger"]
    assert not parse("attack", "rog").evaluators
    others = parse("dataset", "digits"), parse("client", "fedsgd+split=train")
    with pytest.raises(
        IncompatibleError, match=r"tagger.* is trained on the train split of digits"
    ):
        parse("attack", "rog+tagger=tagger").check_knowledge(*others)
