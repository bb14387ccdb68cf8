"""Reading images off crafted parameters' gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.attacks.dense_first import MID_GREY
from gleak.attacks.summary import AttackSummary
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.observation import Observation

if TYPE_CHECKING:
    from torch import Tensor, nn


@register("mkor")
class MKOR(AttackSpec):
    """MKOR's decoding (Eq. 9, 14 to 19): every class of a batch, without iterations.

    The parameters are those of the crafting `mkor`. Clients' usual loss is ``cross_entropy``, under
    which batches that hold every class need its ``sink``; the paper's loss is ``nll_raw``.

    Features of each class are read off the first dense layer (`gleak.attacks.class_reading`) and
    turned into intensities by what they are of grey images, and these, of windows, into an image.
    Behind max-pooling a pixel is half-way between its tightest bounds (Eq. 19); behind average
    pooling or strides windows show means or pixels. What lies between is filled in smoothly, in
    closed form, in place of the reference's box filter; how smoothly is told by what was read.

    Several samples of a class give their mean: it stands once for each, and ``averaged_count`` says
    of how many. A class that cannot be read is left out, and samples nothing was found for are
    mid-grey with ``averaged_count`` 0. Which class a sample has is known. After several local steps
    the mean gradient is read as if it were of one.
    """

    source = "Wang, Velipasalar and Gursoy 2023 (MKOR), sections 3.2 to 3.6"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    crafting: ClassVar[str | None] = "mkor"

    resolution: int | None = parameter(
        None,
        "side that images had before they were enlarged, if the server knows it; none: their own",
        unit="px",
        source="ours",
        ge=1,
    )

    @override
    def traits(self) -> AttackSummary:
        return AttackSummary(labels="by crafted paths")

    def reads(self, model: nn.Module, input_shape: tuple[int, ...]) -> frozenset[str]:
        """The first dense layer; see `AttackSpec.reads`."""
        return frozenset(_first_dense(model, input_shape))

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:
        import torch

        from gleak.attacks.class_reading import read_classes
        from gleak.attacks.window_reading import WindowReader, intensities
        from gleak.matching.problem import mean_gradients

        names = _first_dense(observation.model, observation.input_shape)
        observed = mean_gradients(observation)
        secret, reader = observation.secret, WindowReader(observation.secret, self.resolution)
        samples = []
        for weight, bias in zip(*(observed[name].cpu() for name in names), strict=True):
            found = read_classes(weight, bias, secret, observation.batch_size, observation.loss)
            held = found.counts.nonzero().flatten()
            images = reader.images(intensities(found.means[held], secret))
            samples.append(_one_each(images, held, found.counts[held], observation))
        inputs, labels, behind = map(torch.stack, zip(*samples, strict=True))
        return Reconstruction(
            inputs=inputs.cpu().numpy(),
            labels=labels.cpu().numpy(),
            converged=(behind > 0).any(1).cpu().numpy(),
            averaged_count=behind.cpu().numpy(),
            paired=True,
        )


def _first_dense(model: nn.Module, input_shape: tuple[int, ...]) -> tuple[str, str]:
    """Names of the weight and the bias of the first dense layer."""
    from gleak.models.chain import decompose

    layer = decompose(model).dense[0].name
    return f"{layer}.weight", f"{layer}.bias"


def _one_each(
    images: Tensor, labels: Tensor, counts: Tensor, observation: Observation
) -> tuple[Tensor, Tensor, Tensor]:
    """A sample for each of the batch: the image of its class, or mid-grey where none was found.

    Args:
        images: Shape (M, *shape), of the classes found.
        labels: Shape (M).
        counts: Shape (M), of how many samples each is the mean.
        observation: says how many samples there are.

    Returns:
        Samples, labels, and of how many each is the mean; N of each.
    """
    import torch

    missing = observation.batch_size - int(counts.sum())
    each = counts.repeat_interleave(counts)
    grey = images.new_full((missing, *observation.input_shape), MID_GREY)
    none = labels.new_zeros(missing)
    return (
        torch.cat([images.repeat_interleave(counts, 0), grey]),
        torch.cat([labels.repeat_interleave(counts), none]),
        torch.cat([each, none]),
    )
