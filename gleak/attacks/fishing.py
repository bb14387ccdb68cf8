"""Inverting the gradient of the one class that was fished for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.dense_first import MID_GREY
from gleak.attacks.matching import SignedAdamAttack
from gleak.attacks.summary import AttackSummary
from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.matching.parts import Parts
from gleak.observation import Observation

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


@register("fishing")
class Fishing(SignedAdamAttack):
    """InvertGrad on a batch of one, whose gradient crafted parameters have singled out.

    The parameters of the crafting `fishing` leave of a batch the gradient of one class, so this
    finds one sample a victim: the class's, or something like a mean where it has several;
    ``averaged_count`` says of how many. A victim without the class is told by the target's bias;
    its sample is mid-grey, with ``averaged_count`` 0. After several local steps the mean gradient
    is read as if it were of one, although the other classes' rows are zero in the first step only.
    """

    source = "Wen et al. 2022, class fishing; CF in MKOR section 4"
    crafting: ClassVar[str | None] = "fishing"

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse to repeat local steps, which a whole batch has made.

        Raises:
            IncompatibleError: see `AttackSpec.check`.
        """
        super().check(dataset, model, client)
        if self.repeats_local_steps:
            raise IncompatibleError(
                f"attack {self} seeks one sample of a batch, which does not tell what local steps "
                "on the whole batch did; use client_model=one_step"
            )

    @override
    def parts(self) -> Parts:
        """Of one output there is one label to infer."""
        return Parts(labels="argmin", **self.common())

    @override
    def traits(self) -> AttackSummary:
        """The label is that of the class fished for."""
        return replace(super().traits(), labels="by crafted class")

    @override
    def search(self, observation: Observation) -> Reconstruction:
        from gleak.attacks.class_fishing import of_class_alone, samples_of_class

        target = int(observation.secret["target"][0])
        behind = samples_of_class(observation, target).cpu().numpy()[:, None]
        found = super().search(of_class_alone(observation, target))
        inputs = found.inputs.copy()
        inputs[behind == 0] = MID_GREY
        return replace(
            found,
            inputs=inputs,
            labels=np.full_like(found.labels, target),
            converged=found.converged & (behind[:, 0] > 0),
            averaged_count=behind,
            paired=True,
        )
