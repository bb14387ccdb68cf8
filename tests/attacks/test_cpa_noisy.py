from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from gleak.artifacts.private import UNKNOWN
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from tests.attacks.cases import Make, psnr

EDGES, NOISY = parse("attack", "cpa_edges"), parse("attack", "cpa_noisy")
CLIENT = "fedsgd+batch_size=4+victims=2"


@pytest.mark.parametrize(
    ("model", "defense"),
    [("fc2", "dp+sigma=1e-3"), ("fc2+normalise=imagenet", "gaussian+std=1+unit=norm")],
)
def test_noise_costs_less_than_without_a_model_of_it(
    defense: str, model: str, make_photo_case: Make
) -> None:
    seen, truth = make_photo_case(NOISY, CLIENT, model, defense)
    found = NOISY.reconstruct(seen)
    found.validate()
    plain = psnr(truth.inputs, EDGES.reconstruct(seen).inputs)
    assert psnr(truth.inputs, found.inputs).mean() > plain.mean() + 2
    assert found.converged.all()
    for labels, true in zip(found.labels.tolist(), truth.labels.tolist(), strict=True):
        assert (Counter(labels) & Counter(true)).total() >= 3


def test_turns_improve_the_separated_images(make_photo_case: Make) -> None:
    seen, truth = make_photo_case(NOISY, CLIENT, defense="dp+sigma=1e-3")
    first = parse("attack", "cpa_noisy+turns=0").reconstruct(seen)
    found = NOISY.reconstruct(seen)
    assert psnr(truth.inputs, found.inputs).mean() > psnr(truth.inputs, first.inputs).mean() + 1
    assert (found.objective < first.objective).all()


def test_noise_cannot_be_measured_without_spare_neurons() -> None:
    network, client = parse("model", "mlp+hidden=8"), parse("client", "fedsgd+batch_size=8")
    with pytest.raises(IncompatibleError, match="more neurons than samples: 8 and 8"):
        NOISY.check(parse("dataset", "photos"), network, client)


def test_samples_that_were_not_found_have_no_label(make_photo_case: Make) -> None:
    seen, _ = make_photo_case(NOISY, CLIENT)
    silent = {name: torch.zeros_like(value) for name, value in seen.update.items()}
    found = NOISY.reconstruct(replace(seen, update=silent))
    found.validate()
    assert (found.labels == UNKNOWN).all()
    assert not found.converged.any()
