"""Feature inversion: of true embeddings, and of those that are unmixed from a gradient."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attacker import SearchCost
from gleak.attacks.base import LABELS, AttackSpec, AttackSummary, terms_of
from gleak.attacks.first_layer import label_parameters
from gleak.attacks.matching.engine import solve
from gleak.attacks.matching.image_inversion import EMBEDDINGS, FeatureInversion
from gleak.attacks.matching.label_inference import check_rule, inferred_labels
from gleak.attacks.matching.optimizers import Adam
from gleak.attacks.matching.parts import SearchParts
from gleak.attacks.matching.priors import TotalVariation
from gleak.attacks.matching.problem import Problem, mean_gradients
from gleak.attacks.matching.starts import Normal
from gleak.attacks.matching_attack import Start
from gleak.attacks.observation import Observation
from gleak.attacks.observed_network import is_kinked
from gleak.attacks.unmixing.mixtures import Sources, embeddings_by_sign
from gleak.attacks.unmixing_attack import UnmixingAttack
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import register
from gleak.core.spec import Spec, parameter
from gleak.data.base import DatasetSpec
from gleak.models.base import ModelSpec
from gleak.models.batching import interacting_layer
from gleak.models.examination import check_searchable
from gleak.models.layer_search import features_before, first_dense_layer
from gleak.models.tracing import describe_layer


class InversionSearch(Spec):
    """Fields of the search for images with given embeddings, an attack's last step (CPA Eq. 12).

    The best weight of the total variation depends on how much embeddings differ in direction: 0.03
    to 0.1 suits a trained ``vgg_small``, 0.003 an untrained one, for which the embeddings of any
    two images have a cosine of 0.996. Clipping images to [0, 1] at every step instead of at the end
    gains 3 dB. (Both on training images of CIFAR-10, 300 iterations.)
    """

    inversion_iterations: int = parameter(
        25000, "budget of one victim's images", source="CPA section V-A", ge=1
    )
    inversion_lr: float = parameter(
        0.1, "learning rate of the images at the start", source="CPA reference", gt=0
    )
    tv: float = parameter(
        0.1, "weight of the images' total variation", source="CPA reference", ge=0
    )
    start: Start = parameter(Normal(), "first dummy images", source="ours")
    box: bool = parameter(True, "clip values to [0, 1] at each step", source="ours")

    def search_parts(self) -> SearchParts:
        """Return the components of the search for images."""
        return SearchParts(
            start=self.start,
            optimizer=Adam(lr=self.inversion_lr, schedule="cosine"),
            iterations=self.inversion_iterations,
            priors=(TotalVariation(self.tv),),
            box=self.box,
        )


def embedding_layer(network: torch.nn.Module, shape: tuple[int, ...]) -> str:
    """Return the name of the first dense layer with a bias, whose inputs are features of samples.

    Raises:
        IncompatibleError: there is none, its inputs are the samples themselves, or samples interact
            before it.
    """
    layer = first_dense_layer(network, shape)
    if layer is None:
        raise IncompatibleError(
            "feature inversion needs a dense layer with a bias whose input is one vector for each "
            "sample, and this model has none; use gm or invertgrad"
        )
    if layer.takes_samples:
        raise IncompatibleError(
            "feature inversion needs a dense layer whose inputs are features of the samples, but "
            "the first dense layer of this model takes the samples themselves; use cpa"
        )
    mixing = interacting_layer(network, shape)
    if mixing is not None:
        raise IncompatibleError(
            "feature inversion optimises each image by itself, but in this model "
            f"{describe_layer(network, mixing)} computes with the whole batch; use gm or "
            "invertgrad"
        )
    check_searchable(network, shape, layer.name)
    return layer.name


class InversionAttack(AttackSpec):
    """Base class of attacks that end with the search for images with given embeddings.

    Its fields and components come from `InversionSearch`.
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    tuned: ClassVar[frozenset[str]] = frozenset({"tv"})
    takes_batch_statistics: ClassVar[bool] = False

    @abstractmethod
    def search_parts(self) -> SearchParts:
        """Return the components of the search for images."""

    @property
    def grants(self) -> frozenset[str]:
        """Grants of the start."""
        return self.search_parts().start.grants

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        try:
            self.search_parts().start.check(dataset)
        except IncompatibleError as error:
            raise IncompatibleError(f"attack {self}: {error}") from None
        if model.first_layer == "dense":
            raise IncompatibleError(
                f"attack {self} inverts the features before the first dense layer, but model "
                f"{model} begins with that layer; use cpa"
            )

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        embedding_layer(network, shape)
        check_rule(network, shape, classes, "argmin")

    def cost(self) -> SearchCost:
        """Return the cost of first derivatives, as no second ones are needed."""
        parts = self.search_parts()
        state = parts.optimizer.bytes_per_unknown()
        return SearchCost(evaluations=parts.iterations, passes=3, state=state)

    def summary(self) -> AttackSummary:
        """Return the summary of the inversion alone."""
        parts = self.search_parts()
        return AttackSummary(
            losses=("cosine of embeddings",),
            terms=terms_of(parts),
            optimizers=(str(parts.optimizer),),
            labels=LABELS["argmin"],
        )

    def inversion(self, observation: Observation, embeddings: torch.Tensor) -> FeatureInversion:
        """Return the problem of finding images with given embeddings, Shape (V, N, E).

        The labels are inferred from the classifier's gradient by CPL's rule, in ascending order; it
        is unknown which image has which label.

        Raises:
            IncompatibleError: the network's first dense layer takes no features of the images.
        """
        layer = embedding_layer(observation.model, observation.input_shape)
        labels = inferred_labels("argmin", observation, mean_gradients(observation))
        return FeatureInversion(
            parts=self.search_parts(),
            observed={EMBEDDINGS: embeddings},
            targets=torch.nn.functional.one_hot(labels, observation.classes).to(embeddings),
            shape=(observation.batch_size, *observation.input_shape),
            classes=observation.classes,
            features=features_before(observation.model, layer),
        )


@register("fi")
class FI(InversionSearch, InversionAttack):
    """Feature inversion of the true embeddings, which are granted.

    No server knows them. This is the upper bound of `cpa_fi`, whose embeddings are estimates.
    """

    source = "CPA section IV-B, Eq. 12"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"inversion_iterations"})

    @property
    def grants(self) -> frozenset[str]:
        """Grants of the start, and the embeddings."""
        return super().grants | {"embeddings"}

    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str]:
        return label_parameters(model, input_shape)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        embeddings = observation.granted["embeddings"]
        result = solve(self.inversion(observation, embeddings), observation)
        return replace(result, embeddings=embeddings.float().cpu().numpy())


class EmbeddingUnmixing(InversionAttack, UnmixingAttack):
    """Base class of attacks on convolutional networks: unmixing, then feature inversion.

    Embeddings follow a ReLU, which makes them nonnegative, so that their sign is known.
    """

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if (activation := getattr(model, "activation", "relu")) in ("tanh", "leaky_relu"):
            raise IncompatibleError(
                f"attack {self} needs embeddings that are not negative, but model {model} has "
                f"activation={activation}; use activation=relu"
            )

    def check_observation(self, observation: Observation) -> None:
        super().check_observation(observation)
        embedding_layer(observation.model, observation.input_shape)
        if not is_kinked(observation):
            raise IncompatibleError("needs embeddings that are not negative, as after a ReLU")

    def problem(self, observation: Observation, embeddings: torch.Tensor) -> Problem:
        """Return the optimisation problem of the images, given embeddings of shape (V, N, E)."""
        return self.inversion(observation, embeddings)

    def rehearse(self, observation: Observation) -> None:
        """Unmix, then invert embeddings without values."""
        super().rehearse(observation)
        weight = self.mixture(observation).weight
        embeddings = weight.new_empty(len(weight), observation.batch_size, weight.shape[2])
        solve(self.problem(observation, embeddings), observation)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        return self.invert(observation, self.unmix_embeddings(observation).values)

    def unmix_embeddings(self, observation: Observation) -> Sources:
        """Recover the embeddings of every victim with their sign; zero where not separated.

        Raises:
            IncompatibleError: see `UnmixingAttack.separate`.
        """
        sources = self.separate(observation)
        values = embeddings_by_sign(sources.values, sources.factors).nan_to_num(nan=0.0)
        return replace(sources, values=values)

    def invert(self, observation: Observation, embeddings: torch.Tensor) -> Reconstruction:
        """Invert embeddings to images; a victim without one of them has not converged.

        Those of Shape (V, N, E) that were not separated are zero.
        """
        samples = embeddings.shape[1]
        protocol = replace(observation.protocol, batch_size=samples, mini_batch=samples)
        assumed = replace(observation, protocol=protocol)
        result = solve(self.problem(assumed, embeddings), assumed)
        separated = embeddings.any(2).sum(1) >= observation.batch_size
        return replace(
            result,
            embeddings=embeddings.float().cpu().numpy(),
            converged=result.converged & separated.cpu().numpy(),
        )
