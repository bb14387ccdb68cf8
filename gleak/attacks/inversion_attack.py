"""Feature inversion: base class of its attacks, and the inversion of true embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attack_summary import LABELS, AttackSummary, terms_of
from gleak.attacks.base import AttackSpec
from gleak.attacks.matching.optimizers import Adam
from gleak.attacks.matching.parts import SearchParts
from gleak.attacks.matching.priors import TotalVariation
from gleak.attacks.matching.starts import Normal, StartSpec
from gleak.attacks.observation import Observation
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import nested, register
from gleak.core.spec import parameter

if TYPE_CHECKING:
    from gleak.attacks.matching.image_inversion import FeatureInversion
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.models.base import ModelSpec


class FeatureInvertingAttack(AttackSpec):
    """Base class of attacks whose last step is feature inversion (CPA Eq. 12).

    The labels are inferred from the classifier's gradient by CPL's rule, in ascending order; it is
    unknown which image has which label.

    The best weight of the total variation depends on how much embeddings differ in direction: 0.03
    to 0.1 suits a trained ``vgg_small``, 0.003 an untrained one, for which the embeddings of any
    two images have a cosine of 0.996. Clipping images to [0, 1] at every step instead of at the end
    gains 3 dB. (Both on training images of CIFAR-10, 300 iterations.)
    """

    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    tuned: ClassVar[frozenset[str]] = frozenset({"tv"})
    takes_batch_statistics: ClassVar[bool] = False
    budget_fields: ClassVar[frozenset[str]] = frozenset({"inversion_iterations"})

    inversion_iterations: int = parameter(
        25000, "budget of one victim's images", source="CPA section V-A", ge=1
    )
    inversion_lr: float = parameter(
        0.1, "learning rate of the images at the start", source="CPA reference", gt=0
    )
    tv: float = parameter(
        0.1, "weight of the images' total variation", source="CPA reference", ge=0
    )
    start: Annotated[StartSpec, nested("start")] = parameter(
        Normal(), "first dummy images", source="ours"
    )
    box: bool = parameter(True, "clip values to [0, 1] at each step", source="ours")

    @override
    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        try:
            self.start.check(dataset)
        except IncompatibleError as error:
            raise IncompatibleError(f"attack {self}: {error}") from None
        if model.first_layer == "dense":
            raise IncompatibleError(
                f"attack {self} inverts the features before the first dense layer, but model "
                f"{model} begins with that layer; use cpa"
            )

    @override
    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        """Check that the network has features and a dense layer of logits."""
        from gleak.attacks.matching.label_inference import check_rule

        super().check_network(network, shape, classes, client)
        embedding_layer(network, shape)
        check_rule(network, shape, classes, "argmin")

    @property
    @override
    def grants(self) -> frozenset[str]:
        return self.start.grants

    @property
    @override
    def evaluations(self) -> int:
        """Number of first-order gradients; no second derivatives are needed."""
        return self.inversion_iterations

    @property
    @override
    def passes(self) -> int:
        """A gradient, as only first derivatives are needed."""
        return 3

    @override
    def traits(self) -> AttackSummary:
        parts = self.search_parts()
        return AttackSummary(
            losses=("cosine of embeddings",),
            terms=terms_of(parts),
            optimizers=(str(parts.optimizer),),
            labels=LABELS["argmin"],
        )

    def search_parts(self) -> SearchParts:
        """Return the components of the search for images."""
        return SearchParts(
            start=self.start,
            optimizer=Adam(lr=self.inversion_lr, schedule="cosine"),
            iterations=self.inversion_iterations,
            priors=(TotalVariation(self.tv),),
            box=self.box,
        )

    def inversion(self, observation: Observation, embeddings: torch.Tensor) -> FeatureInversion:
        """Return the optimisation problem of finding images with given embeddings.

        Args:
            observation: of the victims.
            embeddings: Shape (V, N, E).

        Raises:
            IncompatibleError: the network's first dense layer takes no features of the images.
        """

        from gleak.attacks.matching.image_inversion import EMBEDDINGS, FeatureInversion
        from gleak.attacks.matching.label_inference import inferred_labels
        from gleak.attacks.matching.problem import mean_gradients
        from gleak.models.layer_search import features_before

        layer = embedding_layer(observation.model, observation.input_shape)
        classes, samples = observation.classes, observation.batch_size
        labels = inferred_labels("argmin", observation, mean_gradients(observation))
        return FeatureInversion(
            parts=self.search_parts(),
            observed={EMBEDDINGS: embeddings},
            targets=torch.nn.functional.one_hot(labels, classes).to(embeddings),
            shape=(samples, *observation.input_shape),
            classes=classes,
            features=features_before(observation.model, layer),
        )


def embedding_layer(network: torch.nn.Module, shape: tuple[int, ...]) -> str:
    """Return the name of the first dense layer with a bias, whose inputs are features of samples.

    Args:
        network: in the mode in which it is attacked.
        shape: shape of a sample.

    Raises:
        IncompatibleError: there is none, its inputs are the samples themselves, or samples interact
            before it.
    """
    from gleak.models.batching import interacting_layer
    from gleak.models.examination import check_searchable
    from gleak.models.layer_search import first_dense_layer
    from gleak.models.tracing import describe_layer

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


@register("fi")
class FI(FeatureInvertingAttack):
    """Feature inversion of the true embeddings, which are granted.

    No server knows them. This is the upper bound of `cpa_fi`, whose embeddings are estimates.
    """

    source = "CPA section IV-B, Eq. 12"

    @override
    def reads(self, model: torch.nn.Module, input_shape: tuple[int, ...]) -> frozenset[str]:
        from gleak.attacks.first_layer import label_parameters

        return label_parameters(model, input_shape)

    @property
    @override
    def grants(self) -> frozenset[str]:
        """Grants of the start, and the embeddings."""
        return super().grants | {"embeddings"}

    @override
    def reconstruct(self, observation: Observation) -> Reconstruction:
        from gleak.attacks.matching.engine import solve

        embeddings = observation.granted["embeddings"]
        found = solve(self.inversion(observation, embeddings), observation)
        return replace(found, embeddings=embeddings.float().cpu().numpy())
