"""Epsilon by experiment: from scores of a test, or of a defence."""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsFloat, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from gleak.api.given_specs import as_spec
from gleak.api.tensors import ArrayLike, checked_count, checked_seed, tensor_of
from gleak.artifacts.audit_trials import AuditTrials
from gleak.clients.base import ClientSpec
from gleak.core.errors import ArtifactError
from gleak.core.spec import build_spec
from gleak.defenses.base import DefenseSpec
from gleak.membership.canaries import Subject
from gleak.membership.epsilon_audit import EpsilonAudit, Method, audit_scores
from gleak.membership.gradient_canaries import GradientCanaries
from gleak.runtime.seeding import stream

Mechanism = Callable[[Tensor], Tensor]
"""Function from an update, Shape (M), to what is sent of it, Shape (M)."""


def audit_epsilon(
    scores_with: ArrayLike,
    scores_without: ArrayLike,
    *,
    delta: SupportsFloat = 1e-5,
    confidence: SupportsFloat = 0.95,
    method: Method = "rates",
) -> EpsilonAudit:
    """Compute a lower bound on epsilon from the scores of your own test of a mechanism.

    Run the mechanism many times with a record and many times without it, each time with fresh
    random numbers, and give each result a number that is larger the more it looks like one with the
    record. If the bound exceeds the epsilon that is claimed, the claim is wrong, with this
    confidence. A quarter of the scores chooses the threshold of the test.

    Args:
        scores_with: a number for each run with the record, Shape (M); at least 20.
        scores_without: a number for each run without it, Shape (N); at least 20.
        delta: of (epsilon, delta)-privacy.
        confidence: probability that the bound holds.
        method: ``"rates"`` holds for every mechanism, and finds less than log(n) in n runs;
            ``"gaussian"`` holds for Gaussian noise without subsampling, and is then nearly tight;
            ``"one_run"`` is for many records in one run, each included by a fair coin of its own.

    Returns:
        The bound ``epsilon``, with ``mu``, ``threshold`` and the ``ceiling``, which so many scores
        can show at most.

    Raises:
        ArtifactError: too few scores, or one that is not finite.
        SpecError: an unknown method, or a number out of range.

    Example:
        >>> import gleak, numpy as np
        >>> random = np.random.default_rng(0)
        >>> present, absent = random.normal(1, 1, 4000), random.normal(0, 1, 4000)
        >>> audit = gleak.audit_epsilon(present, absent, method="gaussian")
        >>> round(audit.epsilon, 1), round(audit.mu, 1)  # of noise as large as the sensitivity: 4.4
        (3.6, 0.8)
    """
    present, absent = (
        values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        for values in (scores_with, scores_without)
    )
    return audit_scores(present, absent, delta, confidence, method)  # type: ignore[arg-type]


def audit_defense(
    defense: str | DefenseSpec | Mechanism,
    *,
    client: str | ClientSpec = "fedsgd",
    delta: SupportsFloat = 1e-5,
    confidence: SupportsFloat = 0.95,
    method: Method | None = None,
    trials: SupportsIndex = 1000,
    norm: SupportsFloat = 1000.0,
    values: SupportsIndex = 256,
    seed: SupportsIndex = 0,
) -> EpsilonAudit:
    """Measure how private a defence is at least not, by canaries in gradient space.

    A client's update is a random direction or its opposite, longer than the defence should let
    pass. The defence's own code runs on it, and a test guesses which of the two it was
    (``gleak describe gradient_canaries``). Compare the bound with the epsilon that the defence
    claims for one client's update, any two updates being neighbours.

    Args:
        defense: spec of a defence, such as ``"dp+sigma=1"``, an object of your own class, or a
            function from an update, a tensor of Shape (M), to what is sent of it.
        client: how clients train, for specs; ``"fedsgd+batch_size=8"`` gives a batch of 8.
        delta: of (epsilon, delta)-privacy.
        confidence: probability that the bound holds.
        method: see `audit_epsilon`; None: ``"gaussian"`` for specs whose Gaussian noise guarantees
            an epsilon, else ``"rates"``.
        trials: number of canaries; of 1,000 each costs a few milliseconds.
        norm: L2 norm of a canary before the defence.
        values: number of values of an update, M.
        seed: of the canaries, and of the defence's random numbers if it is a spec.

    Returns:
        The bound ``epsilon``, as from `audit_epsilon`.

    Raises:
        SpecError: an unknown defence, client or method, or a number out of range.
        IncompatibleError: the defence does not suit the client.
        ArtifactError: the function returns another shape, or values that are not finite.

    Example:
        >>> import gleak, torch
        >>> def mine(update):  # clipped to 1, with noise of 2: half of the sensitivity's
        ...     return update / max(1, update.norm()) + 2 * torch.randn(len(update))
        >>> _ = torch.manual_seed(0)
        >>> claimed = 4.4
        >>> gleak.audit_defense(mine, method="gaussian").epsilon < claimed
        True
        >>> gleak.audit_defense(lambda update: mine(update) / 2 + update / 8).epsilon > claimed
        True
    """
    fields = {
        "trials": checked_count("trials", trials),
        "values": checked_count("values", values),
        "delta": delta,
        "confidence": confidence,
        "norm": norm,
        "method": method,
    }
    audit, number = build_spec(GradientCanaries, fields), checked_seed(seed)
    assert isinstance(audit, GradientCanaries)
    if isinstance(defense, str | DefenseSpec | type):
        return audit.audit(Subject(as_spec("client", client), as_spec("defense", defense)), number)
    none: DefenseSpec = as_spec("defense", "none")
    return audit.bound(_trials_of(defense, audit, number), none)


def _trials_of(mechanism: Mechanism, audit: GradientCanaries, seed: int) -> AuditTrials:
    """Run a function with a canary or its opposite, and project what it returns on the canary."""
    direction = stream(seed, "directions").normal(size=audit.values)
    direction /= np.linalg.norm(direction)
    present = stream(seed, "coins").random(audit.trials) < 0.5
    canary, scores = torch.from_numpy(audit.norm * direction).float(), []
    for number, sign in enumerate(np.where(present, 1, -1).tolist()):
        sent = tensor_of(f"defense: what it returns in trial {number}", mechanism(sign * canary))
        if sent.shape != canary.shape:
            raise ArtifactError(
                f"defense: returns shape {tuple(sent.shape)} for an update of shape "
                f"{tuple(canary.shape)}; return what is sent of each value"
            )
        if not sent.isfinite().all():
            raise ArtifactError(
                f"defense: returns values that are not finite in trial {number}, for an update of "
                f"norm {audit.norm:g}"
            )
        scores.append(float(sent.detach().cpu().double() @ torch.from_numpy(direction)))
    return AuditTrials(score=np.array(scores), present=present)
