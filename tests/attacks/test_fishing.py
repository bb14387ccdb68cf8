"""One class of a batch, fished out and inverted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gleak.artifacts.private import Private
from gleak.attacks.fishing import FishingAttack, of_class_alone, samples_of_class
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.core.errors import IncompatibleError
from gleak.core.registry import parse
from gleak.metrics.score import match_to_truth
from tests.attacks.cases import Make, psnr

SMALL = FishingAttack(iterations=2)
BATCH = "fedsgd+victims=6+batch_size=5"
each_loss = pytest.mark.parametrize("loss", ["cross_entropy", "nll_raw"])


def held(truth: Private) -> np.ndarray:
    """Count each victim's samples of class 0; Shape (V)."""
    return (truth.labels == 0).sum(1)


@each_loss
@pytest.mark.parametrize("client", [BATCH, "fedavg+victims=6+batch_size=5+local_lr=1e-3"])
def test_the_targets_bias_tells_how_many_samples_there_are(
    make_case: Make, loss: str, client: str
) -> None:
    seen, truth = make_case(SMALL, client=f"{client}+loss={loss}")
    assert {0, 1} < set(held(truth))
    assert np.array_equal(samples_of_class(seen, 0), held(truth))


def test_a_share_that_was_scaled_still_stands_for_a_sample(make_case: Make) -> None:
    seen, truth = make_case(SMALL, client=BATCH)
    faint = {name: value / 1000 for name, value in seen.update.items()}
    found = samples_of_class(replace(seen, update=faint), 0)
    assert np.array_equal(found, held(truth).clip(max=1))


@each_loss
@pytest.mark.parametrize(
    "model",
    ["lenet+width=4", "mlp+hidden=16", pytest.param("resnet20+width=1", marks=pytest.mark.slow)],
)
def test_the_true_sample_alone_has_the_observed_direction(
    make_case: Make, model: str, loss: str
) -> None:
    seen, truth = make_case(SMALL, model=model, training="untrained", client=f"{BATCH}+loss={loss}")
    problem = GradientMatching.of(of_class_alone(seen, 0), SMALL.parts())
    single = held(truth) == 1
    samples = np.stack(
        [truth.inputs[each][truth.labels[each] == 0] for each in np.flatnonzero(single)]
    )
    some = problem.keep(torch.from_numpy(np.flatnonzero(single)))
    distance = some.evaluate(torch.from_numpy(samples).flatten(1)).distance
    assert distance.abs().max() < 1e-5


@pytest.mark.parametrize(
    ("distance", "defense"),
    [
        *((each, "none") for each in ("l2", "squared_error", "profile", "likelihood")),
        ("likelihood", "quantize+bits=8"),
        ("likelihood", "signsgd"),
        ("profile", "low_rank+rank=4"),
    ],
)
def test_the_true_sample_alone_has_the_observed_scale(
    make_case: Make, distance: str, defense: str
) -> None:
    """Rounded values keep the width of their cells, in units of the sample's gradient."""
    spec = SMALL.model_copy(update={"distance": parse("distance", distance)})
    seen, truth = make_case(spec, training="untrained", client=BATCH, defense=defense)
    alone = of_class_alone(seen, 0)
    problem = GradientMatching.of(alone, spec.parts())
    single = held(truth) == 1
    samples = np.stack(
        [truth.inputs[each][truth.labels[each] == 0] for each in np.flatnonzero(single)]
    )
    some = problem.keep(torch.from_numpy(np.flatnonzero(single)))
    true, grey = (
        some.evaluate(torch.from_numpy(each).flatten(1)).distance
        for each in (samples, np.full_like(samples, 0.5))
    )
    assert (true < 1e-2 * grey).all()


def test_other_rows_of_the_last_layer_do_not_matter(make_case: Make) -> None:
    seen, _ = make_case(SMALL, client=BATCH)
    weight, bias = list(seen.update)[-2:]
    changed = {name: value.clone() for name, value in seen.update.items()}
    for name in (weight, bias):
        changed[name][:, :, 1:] = 9.0
    one, other = (SMALL.reconstruct(each) for each in (seen, replace(seen, update=changed)))
    assert np.array_equal(one.inputs, other.inputs)


def test_victims_without_the_class_are_grey_and_the_rest_is_not_compared(make_case: Make) -> None:
    seen, truth = make_case(SMALL, client=BATCH)
    found = SMALL.reconstruct(seen)
    missing = held(truth) == 0
    assert missing.any()
    assert not missing.all()
    assert np.array_equal(found.converged, ~missing)
    assert (found.inputs[missing] == 0.5).all()
    assert (found.labels == 0).all()
    compared = np.isfinite(match_to_truth(truth, found).estimate).all((2, 3, 4))
    assert np.array_equal(compared.sum(1), ~missing)
    assert (truth.labels[compared] == 0).all()


def test_smoothed_labels_are_refused() -> None:
    """Every sample then has a negative gradient at the target's bias."""
    client = "fedsgd+batch_size=2+label_smoothing=0.1"
    with pytest.raises(IncompatibleError, match="label_smoothing"):
        parse("attack", "fishing").check(
            parse("dataset", "photos"), parse("model", "lenet"), parse("client", client)
        )


def test_repeated_local_steps_are_refused() -> None:
    spec = parse("attack", "fishing+client_model=unrolled")
    fault = r"reconstructs one sample of a batch.*client_model=one_step"
    with pytest.raises(IncompatibleError, match=fault):
        spec.check(parse("dataset", "digits"), parse("model", "lenet"), parse("client", "fedavg"))


@pytest.mark.parametrize("distance", ["l2", "likelihood"])
@pytest.mark.parametrize(
    ("client", "defense"),
    [("fedsgd+batch_size=2", "dp"), ("fedavg+batch_size=2+clip_norm=1", "none")],
)
def test_distances_that_depend_on_a_hidden_scale_are_refused(
    distance: str, client: str, defense: str
) -> None:
    clients = parse("client", client), parse("defense", defense)
    with pytest.raises(IncompatibleError, match=r"clip.*use distance=cosine"):
        parse("attack", f"fishing+distance={distance}").check_defense(*clients)
    for other in ("cosine", "profile", "squared_error"):
        parse("attack", f"fishing+distance={other}").check_defense(*clients)


def test_what_an_update_says_of_clipping_is_heeded(make_case: Make) -> None:
    seen, _ = make_case(SMALL, client=BATCH)
    clipped = replace(seen, protocol=replace(seen.protocol, clipping="update"))
    with pytest.raises(IncompatibleError, match=r"clip.*use distance=cosine"):
        parse("attack", "fishing+iterations=2+distance=l2").reconstruct(clipped)
    assert np.array_equal(SMALL.reconstruct(clipped).inputs, SMALL.reconstruct(seen).inputs)


def test_signs_have_no_scale_that_clipping_hides(make_case: Make) -> None:
    spec = parse("attack", "fishing+iterations=2+distance=likelihood")
    seen, _ = make_case(spec, client=BATCH, defense="signsgd")
    clipped = replace(seen, protocol=replace(seen.protocol, clipping="update"))
    assert np.isfinite(spec.reconstruct(clipped).inputs).all()


def test_a_photograph_comes_out_of_a_batch_of_eight(make_photo_case: Make) -> None:
    """Twice as good in decibel as the mean of all training samples."""
    cell = "fedsgd+victims=2+batch_size=8+labels=unique", "lenet+activation=tanh"
    attacks = FishingAttack(iterations=100, tv=0.01), parse("attack", "blind")
    cases = [(attack, *make_photo_case(attack, *cell)) for attack in attacks]
    found, blind = (attack.reconstruct(seen) for attack, seen, _ in cases)
    assert found.averaged_count is not None
    assert found.averaged_count.tolist() == [[1], [1]]
    truth = cases[0][2]
    sought = truth.inputs[truth.labels == 0][:, None]
    assert (psnr(sought, found.inputs) > 2 * psnr(sought, blind.inputs[:, :1])).all()
