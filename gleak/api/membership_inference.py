"""Membership of a user's candidates in the update of a user's own network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
import torch
from torch import Tensor, nn

from gleak.api import tensors
from gleak.api.attack_setting import Setting, as_known
from gleak.api.given_specs import ClientLike, as_spec, client_of, with_client
from gleak.api.tensors import ArrayLike, Gradients, Labels, named_gradients
from gleak.api.user_network import examine, modality_of, own_modes, prepared_copy
from gleak.artifacts.membership import CandidateSamples
from gleak.core.errors import ArtifactError
from gleak.defenses.base import DefenseSpec
from gleak.membership.base import CANDIDATES, Candidates, MembershipSpec
from gleak.membership.infer_members import membership_of
from gleak.models.parameters import without_prefix
from gleak.runtime.device import choose_device

ORIGIN = "candidates"


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """Evidence of each candidate's membership in one update.

    Args:
        spec: canonical spec of the method, which says what the evidence is.
        evidence: larger for candidates that are more probably members; Shape (K), in the order of
            the candidates. Values of one call only are comparable.
        rests_on: the number of candidates, of references and of the client's samples that the
            method was given, by name.
    """

    spec: str
    evidence: Tensor
    rests_on: dict[str, int]

    @property
    def ranked(self) -> Tensor:
        """Positions of the candidates, the most probable member first; Shape (K)."""
        return self.evidence.argsort(descending=True)


@with_client()
@own_modes()
def infer_members(
    spec: str | MembershipSpec,
    model: nn.Module,
    gradients: Gradients,
    candidates: ArrayLike,
    labels: Labels,
    *,
    references: tuple[ArrayLike, Labels] | None = None,
    batch_size: SupportsIndex | None = None,
    client: ClientLike = "fedsgd",
    defense: str | DefenseSpec = "none",
    sent: Gradients | None = None,
    seed: SupportsIndex = 0,
    device: str | torch.device = "auto",
) -> MembershipResult:
    """Infer which of some candidates a client used for the update that it sent.

    Args:
        spec: method, such as ``"regression"`` or ``"gradient_cosine"`` (see ``gleak list
            membership``), or its spec object.
        model: network with the broadcast parameters; see `gleak.attack`.
        gradients: what the client sent; see `gleak.attack`.
        candidates: at least 20 different samples with values in [0, 1], Shape (K, *shape): those
            in question, and others of the same distribution that are not in the update.
        labels: their labels, Shape (K).
        references: samples that no client has, and their labels, by which ``whitened_projection``
            and ``lira`` know what gradients look like.
        batch_size: number of samples of the client; by default that of ``client``, else 1.
        client: how the client trained; see `gleak.attack`.
        defense: defence of the client, as the server knows it; see `gleak.attack`.
        sent: masks of the values that the client sent; see `gleak.attack`.
        seed: seed of the method's random numbers, not negative.
        device: "cpu", "cuda", "cuda:1" or a `torch.device`; "auto": a GPU if torch sees one.

    Returns:
        The evidence of each candidate.

    Raises:
        SpecError: an unknown method, client or field, or a value of another type or out of range.
        ArtifactError: the gradients are not those of the model, candidates are too few, the same,
            or of another shape, or labels are invalid.
        IncompatibleError: the method does not support this model, client or defence.

    Example:
        >>> import gleak, torch
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 4))
        >>> images, labels = torch.rand(30, 3, 4, 4), torch.arange(30) % 4
        >>> sent = gleak.compute_update(model, images[:2], labels[:2])
        >>> found = gleak.infer_members("regression", model, sent, images, labels, batch_size=2)
        >>> found.ranked[:2].sort().values
        tensor([0, 1])
    """
    method: MembershipSpec = as_spec("membership", spec)
    inputs = tensors.checked_inputs(candidates, name=ORIGIN)
    shape, seed = tuple(inputs.shape[1:]), tensors.checked_seed(seed)
    network = prepared_copy(model)
    one = client_of(client, batch_size, samples=1)
    classes = examine(network, shape)
    values = named_gradients(without_prefix(gradients, model), network)
    masks = {} if sent is None else named_gradients(without_prefix(sent, model), network, "sent")
    setting = Setting(network, shape, classes, one, defense=as_known(defense, client, None, one))
    update = setting.update(values, masks)
    setting.check(method, frozenset({CANDIDATES}))
    known = tensors.checked_labels(labels, len(inputs), classes)
    others, theirs = _references(references, shape, classes)
    samples = CandidateSamples(
        modality=modality_of(shape),
        inputs=inputs.float().numpy(),
        labels=known.numpy(),
        candidate=np.arange(len(inputs))[None],
        reference_inputs=others.float().numpy(),
        reference_labels=theirs.numpy(),
    )
    samples.validate(ORIGIN)
    network.to(choose_device(device))
    observation = setting.observe(method, update, {}, {}, seed)
    found = membership_of(method, observation, Candidates.of(samples, observation, ORIGIN))
    counts = {"candidates": len(inputs), "references": len(others), "batch_size": one.batch_size}
    return MembershipResult(str(method), torch.from_numpy(found.evidence[0]), counts)


def _references(
    given: tuple[ArrayLike, Labels] | None, shape: tuple[int, ...], classes: int
) -> tuple[Tensor, Tensor]:
    """Return checked references and their labels, none if none are given."""
    if given is None:
        return torch.empty(0, *shape), torch.empty(0, dtype=torch.long)
    if not isinstance(given, tuple) or len(given) != 2:
        raise ArtifactError("references: expected a pair, samples and their labels")
    inputs = tensors.checked_inputs(given[0], shape, "references")
    return inputs, tensors.checked_labels(given[1], len(inputs), classes, "labels of references")
