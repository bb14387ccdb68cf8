"""Reconstruction of images from the gradients of parameters crafted by MKOR."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attack_summary import AttackSummary
from gleak.attacks.base import MID_GREY, AttackSpec
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


@register("mkor")
class MKOR(AttackSpec):
    """MKOR's decoding (Eq. 9, 14 to 19): every class of a batch, without iterations.

    The parameters are crafted by `mkor`. With the usual loss of clients, ``cross_entropy``, batches
    that contain every class need its ``sink``; the paper's loss is ``nll_raw``.

    Features of each class are recovered from the first dense layer and converted into intensities
    by the responses to grey images; the intensities, of windows, are combined into an image. After
    max-pooling a pixel is the centre of its tightest bounds (Eq. 19); after average pooling or
    strides windows show means or pixels. Values in between are interpolated smoothly, in closed
    form, in place of the reference's box filter, with a smoothness estimated from the features.

    Several samples of a class give their mean, which is repeated for each of them, with their
    number as ``averaged_count``. Classes that cannot be recovered are omitted, and samples that are
    not recovered are mid-grey with ``averaged_count`` 0; their victim has not converged. The label
    of each sample is known. After several local steps the mean gradient is treated as that of one
    step.

    The authors' code takes the classes of a noisy batch from the batch itself (``labels=known``).
    Its dense layers are those of the crafting `mkor` with ``hiding=naive``, with or without noise.
    """

    source = "Wang, Velipasalar and Gursoy 2023 (MKOR), sections 3.2 to 3.6"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    takes_batch_statistics: ClassVar[bool] = False
    uses_gpu: ClassVar[bool] = False
    crafting: ClassVar[str | None] = "mkor"

    resolution: int | None = parameter(
        None,
        "side of the images before they were enlarged, if known to the server; none: not enlarged",
        unit="px",
        source="ours",
        ge=1,
    )
    labels: Literal["read", "known"] = parameter(
        "read",
        "how many samples each class has: read off the biases, or granted",
        source="MKOR Eq. 9; known: MKOR's code under noise",
    )

    @override
    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if self.labels == "known" and client.loss != "nll_raw":
            raise IncompatibleError(
                f"attack {self}: labels=known does not tell features of classes apart, which "
                f"loss={client.loss} of client {client} mixes; use loss=nll_raw or labels=read"
            )

    @property
    @override
    def grants(self) -> frozenset[str]:
        return frozenset({"labels"} if self.labels == "known" else ())

    @override
    def traits(self) -> AttackSummary:
        by = {"read": "by crafted paths", "known": "granted"}
        return AttackSummary(labels=by[self.labels])

    @override
    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str]:
        return frozenset(_first_dense(model, input_shape))

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:

        from gleak.attacks.matching.problem import mean_gradients
        from gleak.attacks.mkor_reading import WindowReader, intensities, read_classes

        names = _first_dense(observation.model, observation.input_shape)
        observed = mean_gradients(observation)
        secret, reader = observation.secret, WindowReader(observation.secret, self.resolution)
        gradients = zip(*(observed[name].cpu() for name in names), strict=True)
        samples = []
        for victim, (weight, bias) in enumerate(gradients):
            found = read_classes(
                weight, bias, secret, observation.batch_size, observation.protocol.loss
            )
            counts = self._granted_counts(observation, victim)
            counts = found.counts if counts is None else counts
            present = counts.nonzero().flatten()
            images = reader.images(intensities(found.means[present], secret))
            samples.append(_one_each(images, present, counts[present], observation))
        inputs, labels, counts = map(torch.stack, zip(*samples, strict=True))
        return Reconstruction(
            inputs=inputs.float().cpu().numpy(),
            labels=labels.cpu().numpy(),
            converged=(counts > 0).all(1).cpu().numpy(),
            averaged_count=counts.cpu().numpy(),
            paired=True,
        )

    def _granted_counts(self, observation: Observation, victim: int) -> torch.Tensor | None:
        """Count a victim's samples of each class; Shape (classes). None if it is not granted."""
        if self.labels == "read":
            return None
        labels = observation.granted["labels"][victim].cpu().long()
        return labels.bincount(minlength=observation.classes)


def _first_dense(model: torch.nn.Module, input_shape: tuple[int, ...]) -> tuple[str, str]:
    """Return the names of the first dense layer's weight and bias."""
    from gleak.models.chain import decompose

    layer = decompose(model).dense[0].name
    return f"{layer}.weight", f"{layer}.bias"


def _one_each(
    images: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor, observation: Observation
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Repeat the image of each class for all of its samples and add mid-grey for missing ones.

    Args:
        images: Shape (M, *shape), one for each class found.
        labels: Shape (M).
        counts: Shape (M), number of samples of which each image is the mean.
        observation: gives the number of samples.

    Returns:
        N samples, their labels, and the number of samples of which each is the mean.
    """

    missing = observation.batch_size - int(counts.sum())
    each = counts.repeat_interleave(counts)
    grey = images.new_full((missing, *observation.input_shape), MID_GREY)
    none = labels.new_zeros(missing)
    return (
        torch.cat([images.repeat_interleave(counts, 0), grey]),
        torch.cat([labels.repeat_interleave(counts), none]),
        torch.cat([each, none]),
    )
