"""Recovery of a dense first layer's inputs from its gradients, and the attack by Aono et al."""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import LABELS, MID_GREY, AttackSpec, AttackSummary
from gleak.attacks.matching.label_inference import (
    check_rule,
    classifier_of,
    infer_by_argmin,
    label_scores,
    parameters_of_labels,
)
from gleak.attacks.matching.problem import mean_gradients
from gleak.attacks.matching.quantisation_cells import IntervalCell
from gleak.attacks.observation import Observation
from gleak.attacks.unmixing.noisy_mixtures import filling
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.differentiation import penalties, sample_losses, smoothed
from gleak.models.layer_search import Classifier, find_classifier, layer_of_samples

ALL = slice(None)
LEAST_ERROR = 1e-15
"""Error of a ratio at which its weight in a mean is bounded."""


def read_inputs(
    weight: torch.Tensor, bias: torch.Tensor, samples: int, errors: torch.Tensor | None = None
) -> torch.Tensor:
    """Estimate the inputs by the ratios of weight and bias gradients.

    For N samples the bias gradient of neuron k is the sum over samples of d_ik, and its weight
    gradient the sum of d_ik x_i: their ratio is a mean of the inputs x_i, with weights that may be
    negative. For one sample it is the input itself at every neuron, so the input is computed by
    least squares over all of them, W^T b / b^T b. For several samples the neurons with the largest
    absolute bias gradients give one candidate each; a layer of fewer neurons repeats them.

    Args:
        weight: W, the weight's gradient; Shape (V, neurons, F).
        bias: b, the bias's gradient; Shape (V, neurons).
        samples: N.
        errors: sizes of the errors of W, for which b's count as well, if they differ; infinite
            where it is not known. Shape (V, neurons, F). They are used for one sample.

    Returns:
        Shape (V, N, F); not finite where the bias gradient is zero.
    """
    if samples == 1:
        largest = bias.abs().amax(1, keepdim=True)
        shares = bias / largest
        if errors is not None:
            precision = (errors / largest[..., None]).clamp_min(LEAST_ERROR).square().reciprocal()
            weights = shares[..., None] * precision
            sums = (weights * weight).sum(1), (weights * shares[..., None]).sum(1)
            return (sums[0] / sums[1] / largest)[:, None]
        estimate = (shares[:, None] @ weight)[:, 0] / shares.square().sum(1, keepdim=True)
        return (estimate / largest)[:, None]
    order = bias.abs().argsort(dim=1, descending=True, stable=True)
    chosen = order[:, torch.arange(samples, device=order.device) % bias.shape[1]]
    return weight.take_along_dim(chosen[..., None], 1) / bias.take_along_dim(chosen, 1)[..., None]


def dense_classifier(model: torch.nn.Module, input_shape: tuple[int, ...]) -> Classifier:
    """Return the dense classifier of a model that takes samples of a shape.

    Raises:
        IncompatibleError: the model has no dense classifier.
    """
    probe = next(model.parameters()).new_zeros(1, *input_shape)
    return find_classifier(model, input_shape, model(probe).shape[1])


def label_parameters(model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str]:
    """Return the name of the parameter that gives labels: the classifier's bias, else its weight.

    Raises:
        IncompatibleError: the model has no dense classifier.
    """
    return frozenset(parameters_of_labels(dense_classifier(model, input_shape))[:1])


def classifier_scores(observation: Observation) -> torch.Tensor:
    """Return the gradient of the classifier's bias, by which CPL infers labels; (V, classes)."""
    return label_scores(observation, classifier_of(observation), mean_gradients(observation))


def output_slopes(
    observation: Observation,
    layer: str,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    outputs: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the gradients of samples' losses, with the network's penalties, at a layer's outputs.

    Args:
        observation: gives the model and the loss.
        layer: name of a dense layer that the model uses once.
        inputs: of the model, also for the parts of it that bypass the layer; Shape (M, *shape).
        labels: Shape (M).
        outputs: that replace those of the layer; Shape (M, neurons), as are the gradients.
    """
    like = next(observation.model.parameters())
    dense = observation.model.get_submodule(layer)
    compared: list[torch.Tensor] = []

    def one_row(_: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Return one row of the layer's inputs, as its outputs are not used."""
        return tuple(values[:1] for values in given)

    def keep(
        _: torch.nn.Module, __: tuple[torch.Tensor, ...], output: torch.Tensor
    ) -> torch.Tensor:
        taken = output if outputs is None else outputs.to(like)
        compared.append(taken.detach().requires_grad_())
        return compared[0] * 1

    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        if outputs is not None:
            stack.enter_context(dense.register_forward_pre_hook(one_row))
        stack.enter_context(dense.register_forward_hook(keep))
        added = stack.enter_context(penalties(observation.model))
        logits = observation.model(inputs.to(like).clone())
        targets = torch.nn.functional.one_hot(labels, observation.classes).to(logits)
        targets = smoothed(targets, observation.protocol.label_smoothing)
        losses = sum(added, sample_losses(observation.protocol.loss, logits, targets))
        (slopes,) = torch.autograd.grad(losses.sum(), compared, materialize_grads=True)
    return slopes


class DenseFirstAttack(AttackSpec):
    """Base class of attacks that recover samples from a dense layer whose inputs they are.

    ``instead`` is the advice of the error for networks that begin with a convolution.
    """

    instead: ClassVar[str] = "use mlp or fc2"

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if model.first_layer == "convolution":
            raise IncompatibleError(
                f"attack {self} needs a first layer that is dense, but model {model} begins with "
                f"a convolution; {self.instead}"
            )

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        layer_of_samples(network, shape)
        check_rule(network, shape, classes, "argmin")
        super().check_network(network, shape, classes, client)

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str] | None:
        """Return the names of the layer's weight and bias, and of the parameter of labels."""
        layer = layer_of_samples(model, input_shape)[0]
        return label_parameters(model, input_shape) | {f"{layer}.weight", f"{layer}.bias"}


@register("aono")
class Aono(DenseFirstAttack):
    """Ratio of weight and bias gradients of the first dense layer, with labels by CPL's rule.

    The result is exact for one sample. For a batch it is a mixture of the samples, clipped to
    [0, 1] (see `gleak.attacks.first_layer.read_inputs`). CPL describes the attack in a sentence: it
    "only works on the first layer of a multi-layer perceptron" and gives data "proportional to the
    private training data". The factor is known here: it is the bias gradient. For local training
    the mean gradient over steps is used, which mixes samples and steps; one sample is still exact
    for any number of steps. Values that were not sent count as zero. Where the bias gradient is
    zero, the sample is mid-grey and the victim has not converged. Of gradients that are known in
    intervals, as after a step of Adam, ratios count by the widths of these. Where clients clip
    weight and bias apart, as under Fed-CDP, the bias does not tell the factor: it is then the
    largest with which the values of a single sample stay in [0, 1].
    """

    source = "Aono et al. 2017, section 3; [2] in CPL section 4.2 and Figure 10"
    takes_intervals: ClassVar[bool] = True

    def check_observation(self, observation: Observation) -> None:
        super().check_observation(observation)
        if observation.modality == "image" and any(_are_clipped_apart(observation)):
            raise IncompatibleError("singular_vectors scales images with less noise")

    def summary(self) -> AttackSummary:
        return AttackSummary(labels=LABELS["argmin"])

    def reconstruct(self, observation: Observation) -> Reconstruction:
        observed, samples = mean_gradients(observation), observation.batch_size
        layer, scaling = layer_of_samples(observation.model, observation.input_shape)
        bias = observed[f"{layer}.bias"]
        raw = observed[f"{layer}.weight"]
        weight = scaling.gradient_of_samples(raw, bias)
        inputs = read_inputs(weight, bias, samples, _errors(observation, layer))
        for victim, is_apart in enumerate(_are_clipped_apart(observation)):
            if is_apart:
                ratio = read_inputs(raw[[victim]], bias[[victim]], 1)[0]
                inputs[victim] = scaling.samples_of(filling(ratio, *scaling.bounds) * ratio)
        labels = infer_by_argmin(classifier_scores(observation), samples)
        return exact_reconstruction(observation, inputs, labels)


def clipped_apart(observation: Observation, weight: torch.Tensor, bias: torch.Tensor) -> bool:
    """Return True if a sample's gradients of a layer may have factors of their own, as in Fed-CDP.

    Of several steps on one sample it is not known which were clipped.
    """
    protocol = observation.protocol
    if observation.batch_size > 1 or protocol.clipping != "parameter":
        return False
    either = protocol.may_be_clipped(weight) or protocol.may_be_clipped(bias)
    return not observation.is_sample_gradient or either


def _are_clipped_apart(observation: Observation) -> list[bool]:
    """Return for each victim whether `clipped_apart` holds for the layer that takes samples."""
    observed = mean_gradients(observation)
    layer = layer_of_samples(observation.model, observation.input_shape)[0]
    weights, biases = (observed[f"{layer}.{part}"] for part in ("weight", "bias"))
    return [clipped_apart(observation, *one) for one in zip(weights, biases, strict=True)]


def _errors(observation: Observation, layer: str) -> torch.Tensor | None:
    """Return the errors of a dense layer's gradient for `read_inputs`, if it is in intervals."""
    cells = [observation.cells.get(f"{layer}.{part}") for part in ("weight", "bias")]
    widths = [cell.at((ALL, 0)).width for cell in cells if isinstance(cell, IntervalCell)]
    if len(widths) < len(cells):
        return None
    weight, bias = (width / abs(observation.protocol.update_scale) for width in widths)
    return weight.hypot(bias[..., None])


def exact_reconstruction(
    observation: Observation, inputs: torch.Tensor, labels: torch.Tensor
) -> Reconstruction:
    """Return a reconstruction whose inputs are mid-grey where they are not finite; (V, N, F)."""
    recovered = inputs.isfinite()
    samples = inputs.where(recovered, MID_GREY).clamp(0, 1).unflatten(2, observation.input_shape)
    return Reconstruction(
        inputs=samples.float().cpu().numpy(),
        labels=labels.cpu().numpy(),
        converged=recovered.flatten(1).all(1).cpu().numpy(),
    )
