"""Sparsification by a threshold: what is not sent now is kept for later rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from gleak.artifacts.encodings import Encoded, Sparse
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.defenses.base import DefenseSpec, Memory
from gleak.defenses.sparsity import Scope, exact, send_largest

if TYPE_CHECKING:
    from torch import Generator, Tensor


@register("threshold")
class Threshold(DefenseSpec):
    """The values whose magnitude lies above a quantile are sent, the others accumulated.

    What a client did not send it adds to its next update before it chooses, so that nothing is
    lost, only delayed. In a first round this is `topk` with a share of 1 - theta and the same
    scope. Of Deep Gradient Compression it is the part that CPL describes; momentum correction,
    clipping and warm-up, which speed up the training, are left out. The threshold is a quantile, so
    that of a gradient and of a difference of weights the same values are sent.
    """

    source = "Lin et al. 2018; CPL section 3.2"

    theta: float = parameter(
        0.4, "share of values that is not sent in a round", source="CPL Table 7", ge=0, lt=1
    )
    scope: Scope = parameter(
        "global", "what a value is compared with", source="ours; see docs/results/cpl.md"
    )

    @override
    def protect(
        self, update: dict[str, Tensor], generator: Generator, memory: Memory
    ) -> dict[str, Encoded]:
        """At least one value is sent of what is compared."""
        rounds = zip(*(value.split(1) for value in update.values()), strict=True)
        sent = [self._send(dict(zip(update, one, strict=True)), memory) for one in rounds]
        return {name: _in_order([one[name] for one in sent]) for name in update}

    def _send(self, update: dict[str, Tensor], memory: Memory) -> dict[str, Sparse]:
        """One round, in which the memory changes; by parameter Shape (1, *shape)."""
        import torch

        due = {name: value + memory.get(name, 0) for name, value in update.items()}
        sent = send_largest(due, 1 - exact(self.theta), self.scope)
        for name, encoded in sent.items():
            memory[name] = (due[name] - torch.from_numpy(encoded.decode()[0]))[0]
        return sent


def _in_order(rounds: Sequence[Sparse]) -> Sparse:
    """Rounds that were sent one at a time, joined as victims are but along their own axis."""
    joined = Sparse.stack(rounds)
    return Sparse(joined.indices.swapaxes(0, 1), joined.values.swapaxes(0, 1), joined.shape)
