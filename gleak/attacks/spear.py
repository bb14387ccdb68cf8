"""Unmixing of a batch by the zeros that a ReLU leaves in the gradient (SPEAR)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attack_summary import LABELS, AttackSummary
from gleak.attacks.base import MID_GREY
from gleak.attacks.dense_first import DenseFirstAttack
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.models.perceptron import Perceptron

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


@register("spear")
class Spear(DenseFirstAttack):
    """Exact samples of a batch from a dense layer with ReLU, with labels by CPL's rule.

    If all samples are recovered, their predicted probabilities make the rule exact.

    Like SPEAR, the attack uses the zeros that the ReLU leaves in a low-rank gradient (see
    `gleak.attacks.unmixing.relu_sparsity`) and verifies samples without the truth: a sample must
    activate the neurons at which its gradient is not zero. SPEAR draws random submatrices. Here
    images are first separated approximately by `cpa_edges`, and the neurons at which they are
    surely inactive give exact directions; those found leave fewer images to separate (see
    `gleak.attacks.unmixing.relu_patterns`). Then, and for tables, sparse directions are searched by
    iteratively reweighted least squares and, if the network has only one more layer, also by the
    sign and size that its weights give a sample's gradient (see
    `gleak.attacks.unmixing.relu_search`). Samples that are not recovered are mid-grey; a victim
    has converged when all are recovered. The attack needs a single gradient: in several local
    steps the gradients of the layers differ.
    """

    source = "Dimitrov et al. 2024 (SPEAR), sections 3 and 4"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"rounds"})
    instead: ClassVar[str] = "use fc2 or mlp+activation=relu"
    takes_local_steps: ClassVar[bool] = False
    takes_batch_statistics: ClassVar[bool] = False

    rounds: int = parameter(64, "searches for directions, budget of one victim", ge=1)

    @override
    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if isinstance(model, Perceptron):
            self._check_perceptron(model, client.batch_size)

    def _check_perceptron(self, model: Perceptron, samples: int) -> None:
        if model.activation != "relu":
            raise IncompatibleError(
                f"attack {self} needs the zeros of a ReLU, but model {model} has "
                f"activation={model.activation}; use activation=relu"
            )
        self._check_neurons(samples, model.hidden, f"model {model}")

    def _check_neurons(self, samples: int, neurons: int, where: str) -> None:
        """Raise `IncompatibleError` if there are fewer neurons than samples."""
        if samples > neurons:
            raise IncompatibleError(
                f"attack {self} separates at most as many samples as the layer has neurons: "
                f"{samples} and {neurons} ({where}); use a smaller batch_size"
            )

    @override
    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """Check that the first layer is dense and has at least one neuron for each sample."""
        from gleak.attacks.first_layer import dense_layer_of_samples

        super().check_network(network, shape, classes, client)
        layer = dense_layer_of_samples(network, shape)
        neurons = len(network.get_parameter(f"{layer}.bias"))
        self._check_neurons(client.batch_size, neurons, f"layer {layer!r}")

    @override
    def traits(self) -> AttackSummary:
        return AttackSummary(
            losses=("sparsity of directions", "likelihood of edges"),
            optimizers=("reweighted least squares", "quasi-Newton"),
            labels=LABELS["argmin"],
        )

    @override
    def rehearse(self, observation: Observation) -> None:
        """Take few rounds, as the end of the search depends on values, for one victim of all."""
        self.model_copy(update={"rounds": 3}).reconstruct(observation.of_victim(0))

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:
        from gleak.attacks.matching.label_inference import (
            classifier_gradient,
            classifier_of,
            infer_by_argmin,
        )
        from gleak.attacks.matching.problem import mean_gradients
        from gleak.attacks.spear_unmixing import unmix_victims, without_probabilities

        observed, samples = mean_gradients(observation), observation.batch_size
        scores = classifier_gradient(classifier_of(observation), observed)
        found = unmix_victims(observation, observed, scores, self.rounds)
        labels = infer_by_argmin(without_probabilities(observation, scores, found), samples)
        recovered = found.isfinite()
        inputs = found.where(recovered, MID_GREY).clamp(0, 1).unflatten(2, observation.input_shape)
        return Reconstruction(
            inputs=inputs.float().cpu().numpy(),
            labels=labels.cpu().numpy(),
            converged=recovered.flatten(1).all(1).cpu().numpy(),
        )
