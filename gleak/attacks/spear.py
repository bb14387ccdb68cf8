"""The attack that unmixes a batch by the zeros of a ReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.dense_first import MID_GREY, DenseFirstAttack
from gleak.attacks.summary import LABELS, AttackSummary
from gleak.core.errors import IncompatibleError
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.perceptron import Perceptron
from gleak.observation import Observation

if TYPE_CHECKING:
    from torch import nn

    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


@register("spear")
class Spear(DenseFirstAttack):
    """Exact samples of a batch from a dense layer with ReLU, labels by CPL's rule.

    Where all samples are found, their own probabilities make the rule exact.

    As SPEAR's the attack rests on the zeros that the ReLU leaves in a low-rank gradient (see
    `gleak.unmixing.relu_sparsity`), and judges without the truth: a sample must be active at the
    neurons at which its gradient is not zero. SPEAR draws submatrices at random; here sparse
    directions are searched by reweighted least squares, and where the network has one more layer
    only, also by the sign and size that its weights give a sample's gradient (see
    `gleak.unmixing.relu_search`). Samples not found are mid-grey; a victim has converged when all
    are found. Needs one gradient: of several local steps the layers' gradients differ.
    """

    source = "Dimitrov et al. 2024 (SPEAR), sections 3 and 4"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"rounds"})
    instead: ClassVar[str] = "use fc2 or mlp+activation=relu"
    takes_local_steps: ClassVar[bool] = False

    rounds: int = parameter(64, "of 128 directions each, after which a victim is given up", ge=1)

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse models without a dense layer and a ReLU first, too.

        Raises:
            IncompatibleError: see `AttackSpec.check`.
        """
        super().check(dataset, model, client)
        if isinstance(model, Perceptron):
            self._check_perceptron(model, client.batch_size)

    def _check_perceptron(self, model: Perceptron, samples: int) -> None:
        if model.activation != "relu":
            raise IncompatibleError(
                f"attack {self} looks for the zeros that a ReLU leaves, and model {model} has "
                f"activation={model.activation}; use activation=relu"
            )
        self._check_neurons(samples, model.hidden, f"model {model}")

    def _check_neurons(self, samples: int, neurons: int, where: str) -> None:
        """Refuse layers with fewer neurons than samples.

        Raises:
            IncompatibleError: names both numbers.
        """
        if samples > neurons:
            raise IncompatibleError(
                f"attack {self} tells no more samples apart than the layer has neurons: "
                f"{samples} and {neurons} ({where}); use a smaller batch_size"
            )

    @override
    def check_network(
        self, network: nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """A neuron of the first layer for each sample, too."""
        from gleak.attacks.first_layer import dense_layer_of_samples

        super().check_network(network, shape, classes, client)
        layer = dense_layer_of_samples(network, shape)
        neurons = len(network.get_parameter(f"{layer}.bias"))
        self._check_neurons(client.batch_size, neurons, f"layer {layer!r}")

    @override
    def traits(self) -> AttackSummary:
        return AttackSummary(
            losses=("sparsity of directions",),
            optimizers=("reweighted least squares",),
            labels=LABELS["argmin"],
        )

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """See `AttackSpec.reconstruct`.

        Raises:
            IncompatibleError: the network does not begin with a dense layer that has a bias.
        """
        from gleak.attacks.relu_victims import unmix_victims, without_probabilities
        from gleak.matching.label_inference import (
            classifier_gradient,
            classifier_of,
            infer_by_argmin,
        )
        from gleak.matching.problem import mean_gradients

        observed, samples = mean_gradients(observation), observation.batch_size
        scores = classifier_gradient(classifier_of(observation), observed)
        found = unmix_victims(observation, observed, scores, self.rounds)
        labels = infer_by_argmin(without_probabilities(observation, scores, found), samples)
        told = found.isfinite()
        inputs = found.where(told, MID_GREY).clamp(0, 1).unflatten(2, observation.input_shape)
        return Reconstruction(
            inputs=inputs.float().cpu().numpy(),
            labels=labels.cpu().numpy(),
            converged=told.flatten(1).all(1).cpu().numpy(),
        )
