"""Workflow stage that infers who took part, and writes ``membership.h5``."""

from __future__ import annotations

from pathlib import Path

from gleak.artifacts.membership import CandidateSamples, Membership
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import observe
from gleak.core.errors import IncompatibleError
from gleak.membership.base import Candidates, MembershipSpec


def infer_members(
    spec: MembershipSpec,
    update_path: Path,
    parameters_path: Path,
    candidates_path: Path,
    output: Path,
    *,
    seed: int,
    device: str = "auto",
) -> None:
    """Compute the evidence of each candidate and write it.

    The paths are those of ``update.h5``, of ``model.h5`` or ``parameters.h5`` as broadcast, and of
    ``granted/candidates.h5``.

    Raises:
        ArtifactError: a bad file, an update that does not fit the parameters, or candidates that
            do not fit the network.
        IncompatibleError: the attack lacks what it needs.
    """
    observation = observe(
        update_path, parameters_path, {}, reads=spec.reads, seed=seed, device=device
    )
    samples = CandidateSamples.read(candidates_path)
    candidates = Candidates.of(samples, observation, str(candidates_path))
    result = membership_of(spec, observation, candidates)
    path = f"{observation.spec}/{spec}"
    Membership(spec=path, seed=seed, evidence=result.evidence).write(output)


def membership_of(
    spec: MembershipSpec, observation: Observation, candidates: Candidates
) -> Membership:
    """Run an attack on an observation.

    Raises:
        IncompatibleError: clients normalise by their batches, so that samples have no gradients of
            their own.
    """
    if observation.protocol.batch_norm == "training" and not spec.takes_batch_statistics:
        raise IncompatibleError(
            f"membership {spec} needs the gradient of each sample, but these clients normalise by "
            "the whole batch"
        )
    return Membership(evidence=spec.infer(observation, candidates))
