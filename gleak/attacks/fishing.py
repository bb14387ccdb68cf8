"""Inversion of the gradient of the one class that crafted parameters single out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attacker import SearchCost
from gleak.attacks.base import MID_GREY, AttackSummary
from gleak.attacks.matching.distances import Cosine, EstimatedScale
from gleak.attacks.matching.parts import Parts
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.matching.quantisation_cells import SignCell
from gleak.attacks.matching_attack import SignedAdamAttack
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.data.base import DatasetSpec
from gleak.defenses.base import DefenseSpec
from gleak.models.base import ModelSpec
from gleak.models.layer_search import find_classifier
from gleak.models.parameters import independent_copy


@register("fishing")
class FishingAttack(SignedAdamAttack):
    """InvertGrad on a batch of one sample, whose gradient crafted parameters have singled out.

    With the parameters of the crafting `fishing` a batch has the gradient of one class only. The
    attack reconstructs one sample for each victim: the sample of that class, or approximately a
    mean if there are several; ``averaged_count`` is their number. A victim without the class is
    detected by the gradient of the target's bias; its sample is mid-grey, with ``averaged_count``
    0. After several local steps the mean gradient is treated as that of one step, although the rows
    of the other classes are zero in the first step only.

    The update is divided by the share of these samples, so that it is the gradient of one at its
    scale. Where clients clip, the scale is unknown, and the distance must not depend on it.
    """

    source = "Wen et al. 2022, class fishing; CF in MKOR section 4"
    takes_batch_statistics: ClassVar[bool] = False
    crafting: ClassVar[str | None] = "fishing"

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if client.label_smoothing:
            raise IncompatibleError(
                f"attack {self} takes a negative gradient of the target's bias for its samples, "
                f"but label_smoothing={client.label_smoothing} gives one to every sample; leave it "
                "out"
            )
        if self.client_model == "unrolled":
            raise IncompatibleError(
                f"attack {self} reconstructs one sample of a batch, which does not determine the "
                "local steps on the whole batch; use client_model=one_step"
            )

    def check_defense(self, client: ClientSpec, defense: DefenseSpec) -> None:
        super().check_defense(client, defense)
        protocol = defense.protocol_of(client)
        clips = protocol.clipping is not None or protocol.clip_norm is not None
        self._check_distance(clips and protocol.optimizer.linear)

    def _check_distance(self, scale_is_unknown: bool) -> None:
        """Raise `IncompatibleError` if the distance depends on a scale that is unknown."""
        if scale_is_unknown and not isinstance(self.distance, Cosine | EstimatedScale):
            raise IncompatibleError(
                f"attack {self} needs the scale of the update, which clients that clip it hide; "
                "use distance=cosine, which does not depend on the scale, or distance=profile, "
                "which estimates it"
            )

    def cost(self) -> SearchCost:
        return replace(super().cost(), samples=1)

    def parts(self) -> Parts:
        """Return the components; with one output there is only one label to infer."""
        return Parts(labels="argmin", **self.common())

    def summary(self) -> AttackSummary:
        return replace(super().summary(), labels="by crafted class")

    def search(self, observation: Observation) -> Reconstruction:
        codes = [observation.cells.get(name) for name in observation.update]
        only_signs = all(isinstance(code, SignCell) for code in codes)
        self._check_distance(observation.protocol.clipping is not None and not only_signs)
        target = int(observation.secret["target"][0])
        counts = samples_of_class(observation, target).cpu().numpy()[:, None]
        result = super().search(of_class_alone(observation, target))
        inputs = result.inputs.copy()
        inputs[counts == 0] = MID_GREY
        return replace(
            result,
            inputs=inputs,
            labels=np.full_like(result.labels, target),
            converged=result.converged & (counts[:, 0] > 0),
            averaged_count=counts,
            paired=True,
        )


def samples_of_class(observation: Observation, target: int) -> torch.Tensor:
    """Estimate the number of each victim's samples of one class; Shape (V).

    The gradient of the target's bias is the mean of p - [label = target], where p is almost zero:
    minus the class's share of the batch. A defence may have scaled it, so any negative value counts
    as at least one sample.
    """
    _, bias = _last_layer(observation)
    share = -mean_gradients(observation)[bias][:, target]
    counts = (share * observation.batch_size).round().clamp(1, observation.batch_size)
    return torch.where(share > 0, counts, 0).long()


def of_class_alone(observation: Observation, target: int) -> Observation:
    """Return the observation of a client with one sample and a network with one output.

    The output is the target's logit, and the loss is its negative. The update contains the
    gradients of the target's samples only, times their share of the batch: it is divided by the
    share that `samples_of_class` finds, and so are the widths of rounded values and intervals. The
    other rows of the last layer, which depend on samples of other classes, are dropped.
    """
    names = _last_layer(observation)
    network = independent_copy(observation.model)
    rows = (network.get_parameter(name)[target, None].clone() for name in names)
    last: Any = network.get_submodule(names[0].rpartition(".")[0])
    last.weight, last.bias = (torch.nn.Parameter(row, requires_grad=False) for row in rows)
    last.out_features = 1
    counts = samples_of_class(observation, target).clamp(min=1)

    def target_row(name: str, value: torch.Tensor) -> torch.Tensor:
        return value[:, :, target, None] if name in names and value.ndim > 2 else value

    def of_one_sample(name: str, value: torch.Tensor) -> torch.Tensor:
        row = target_row(name, value)
        factors = observation.batch_size / counts.to(row)
        return row * factors.view(-1, *[1] * (row.ndim - 1))

    return replace(
        observation,
        update={name: of_one_sample(name, value) for name, value in observation.update.items()},
        sent={name: target_row(name, value) for name, value in observation.sent.items()},
        cells={
            name: replace(cell, **{of: of_one_sample(name, one) for of, one in vars(cell).items()})
            for name, cell in observation.cells.items()
        },
        bases={name: basis for name, basis in observation.bases.items() if name not in names},
        model=network,
        classes=1,
        protocol=replace(observation.protocol, batch_size=1, mini_batch=1, loss="nll_raw"),
    )


def _last_layer(observation: Observation) -> tuple[str, str]:
    network, shape = observation.model, observation.input_shape
    return find_classifier(network, shape, observation.classes).dense_parameters()
