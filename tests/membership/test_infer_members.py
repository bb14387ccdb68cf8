from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gleak.artifacts.membership import CandidateSamples, Membership
from gleak.core.errors import ArtifactError, IncompatibleError
from gleak.core.registry import parse
from gleak.membership.infer_members import infer_members, membership_of
from gleak.testing.tiny_cells import TinyCells
from tests.membership.conftest import MakeVictims, draw

SPEC = parse("membership", "gradient_cosine")


def test_the_file_has_the_evidence_of_the_spec(cells: TinyCells, make_victims: MakeVictims) -> None:
    observation, candidates, _ = make_victims()
    folder = cells.simulate(client="fedsgd+batch_size=4+victims=3")
    output = folder / "membership.h5"
    files = folder / "update.h5", folder / "model.h5", draw(folder) / "granted" / "candidates.h5"
    infer_members(SPEC, *files, output, seed=5, device="cpu")
    found = Membership.read(output)
    assert found.spec.endswith("/gradient_cosine")
    np.testing.assert_allclose(found.evidence, SPEC.infer(observation, candidates), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"inputs": np.zeros((30, 1, 8, 8), np.float32)}, r"has samples of shape \(1, 8, 8\)"),
        ({"candidate": np.arange(24)[None]}, "has victims 1, but the update is of 3"),
        ({"reference_labels": np.full(40, 7)}, "but the network has 4 classes"),
    ],
)
def test_candidates_that_do_not_fit_are_refused(
    change: dict[str, np.ndarray], fault: str, cells: TinyCells, make_victims: MakeVictims
) -> None:
    observation, candidates, _ = make_victims()
    folder = cells.simulate(client="fedsgd+batch_size=4+victims=3")
    samples = CandidateSamples.read(draw(folder) / "granted" / "candidates.h5")
    with pytest.raises(ArtifactError, match=fault):
        type(candidates).of(replace(samples, **change), observation, "candidates.h5")


@pytest.mark.parametrize(("steps", "order"), [(2, "fixed"), (1, "shuffled")])
def test_captured_clients_that_left_samples_out_are_refused(steps: int, order: str) -> None:
    text = f"captured+batch_size=7+mini_batch=4+local_steps={steps}+drop_last=true+order={order}"
    with pytest.raises(IncompatibleError, match="left out 3 of its samples"):
        SPEC.check_defense(parse("client", text), parse("defense", "none"))


def test_shuffled_rounds_that_keep_a_state_and_leave_samples_out_are_refused() -> None:
    text = "fedavg+batch_size=7+mini_batch=4+drop_last=true+optimizer=sgd~momentum=0.9+state=kept"
    SPEC.check_defense(parse("client", text), parse("defense", "none"))
    with pytest.raises(IncompatibleError, match="whose state it keeps"):
        SPEC.check_defense(parse("client", f"{text}+order=shuffled"), parse("defense", "none"))


def test_several_epochs_of_captured_clients_take_other_samples() -> None:
    text = "captured+batch_size=7+mini_batch=4+local_steps=2+drop_last=true+order=shuffled"
    SPEC.check_defense(parse("client", text), parse("defense", "none"))


def test_samples_without_gradients_of_their_own_are_refused(make_victims: MakeVictims) -> None:
    observation, candidates, _ = make_victims()
    mixed = replace(observation, protocol=replace(observation.protocol, batch_norm="training"))
    with pytest.raises(IncompatibleError, match="normalise by the whole batch"):
        membership_of(SPEC, mixed, candidates)
