from __future__ import annotations

import pytest

from gleak.core.errors import IncompatibleError, SpecError
from gleak.core.registry import parse
from gleak.knowledge.base import Pretraining

CODEC = "codec+size=64"


def knowledge(text: str):
    return parse("knowledge", text)


def dataset(text: str):
    return parse("dataset", text)


@pytest.mark.parametrize(
    ("spec", "victims", "public"),
    [
        (CODEC, "digits", "digits"),
        (CODEC, "photos+size=20+crops=3", "photos+size=20+crops=3"),
        (f"{CODEC}+public=photos", "cifar10", "photos"),
        (f"{CODEC}+public=photos", "tiny_imagenet", "photos+size=64"),
        (f"{CODEC}+public=folder", "digits", "folder+size=16+channels=1"),
    ],
)
def test_the_public_dataset_has_images_as_large_as_the_victims(
    spec: str, victims: str, public: str
) -> None:
    found = knowledge(spec).public_dataset(dataset(victims))
    assert found == dataset(public)
    assert found.shape == dataset(victims).shape


@pytest.mark.parametrize(
    ("spec", "victims", "error", "fault"),
    [
        (f"{CODEC}+public=photo", "digits", SpecError, "unknown dataset 'photo'; .*'photos'"),
        (f"{CODEC}+public=photos", "digits", IncompatibleError, r"have shape \(3, 16, 16\), but"),
        (f"{CODEC}+public=adult", "digits", IncompatibleError, "samples of adult have shape"),
        (CODEC, "adult", IncompatibleError, "needs images, but adult contains tabular data"),
        ("codec+size=256", "digits", IncompatibleError, "not shorter than images of 256; lower"),
        (f"{CODEC}+public=photos", "imagenet+size=261", IncompatibleError, "victims of .*'size'"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    spec: str, victims: str, error: type[Exception], fault: str
) -> None:
    with pytest.raises(error, match=fault):
        knowledge(spec).public_dataset(dataset(victims))


def test_victims_that_may_be_among_the_public_samples_are_refused() -> None:
    own, other = knowledge(CODEC), knowledge(f"{CODEC}+public=photos")
    tested, tuned = (parse("client", text) for text in ("fedsgd", "fedsgd+split=train"))
    for spec, victims in ((own, "digits"), (other, "cifar10"), (other, "photos+crops=3")):
        spec.check_victims(dataset(victims), tested)
    other.check_victims(dataset("cifar10"), tuned)
    with pytest.raises(
        IncompatibleError, match=r"knowledge codec.*split of digits, from which client fedsg"
    ):
        own.check_victims(dataset("digits"), tuned)
    with pytest.raises(IncompatibleError, match="split of photos, from which"):
        other.check_victims(dataset("photos+crops=3"), tuned)


def test_a_file_says_where_the_public_data_come_from_once() -> None:
    spec = knowledge(f"{CODEC}+public=photos")
    assert str(spec.trained) == CODEC
    found = Pretraining.parse("photos", CODEC)
    assert found == Pretraining(dataset("photos"), spec.trained)
    assert str(found) == f"photos/{CODEC}"
    assert Pretraining.from_path(found.strings()) == found
    with pytest.raises(SpecError, match=f"write it as '{CODEC}'".replace("+", r"\+")):
        Pretraining.parse("photos", str(spec))


@pytest.mark.parametrize(
    ("levels", "fault"),
    [
        ({"dataset": "photos+size=32"}, r"dataset 'photos\+size=32': write it as 'photos'"),
        ({"knowledge": "codec+size=064"}, r"knowledge 'codec\+size=064': write it as 'codec"),
        ({"knowledge": "codek"}, "unknown knowledge 'codek'; did you mean 'codec'"),
    ],
)
def test_a_path_has_one_spelling(levels: dict[str, str], fault: str) -> None:
    with pytest.raises(SpecError, match=fault):
        Pretraining.from_path({"dataset": "photos", "knowledge": CODEC, **levels})
