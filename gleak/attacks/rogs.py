"""Reconstruction from obfuscated gradients at the semantic level."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

from typing_extensions import override

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.rog import ROG
from gleak.attacks.summary import LABELS, AttackSummary
from gleak.core.errors import IncompatibleError
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.knowledge.autoencoder import Generator
from gleak.knowledge.base import GenerativeSpec
from gleak.matching.optimizers.first_order import Adam
from gleak.matching.parts import SearchParts
from gleak.matching.starts.random_values import Normal
from gleak.observation import Observation
from gleak.runtime.perceptual import CHANNELS
from gleak.runtime.seeding import derived_seed

if TYPE_CHECKING:
    from gleak.clients.base import ClientSpec
    from gleak.data.base import DatasetSpec
    from gleak.knowledge.base import ImageGenerator
    from gleak.matching.image_inversion import Terms
    from gleak.models.base import ModelSpec


@register("rogs")
class ROGS(ROG):
    """What `rog` finds, and then the most similar images of its labels that a generator can make.

    Codes of the generator are sought by Adam from random ones (Eq. 19). The first fields, up to
    ``finish``, are those of `rog`. The norm of Eq. 20 goes over all values of an image in [0, 1],
    and so counts more in larger ones. The perceptual term needs weights that are not downloaded;
    without them ``lpips=0``. Iterations, objective and snapshots are those of the codes' search.
    """

    source = "Yue et al. 2023, section 6"
    budget_fields: ClassVar[frozenset[str]] = ROG.budget_fields | {"generator_iterations"}
    tuned: ClassVar[frozenset[str]] = ROG.tuned | {"l2", "lpips"}

    generator: Annotated[GenerativeSpec, nested("knowledge")] = parameter(
        Generator(), "what makes images of a class", source="ROG section 6; there BigGAN"
    )
    generator_iterations: int = parameter(1000, "budget of one victim's codes", source="ours", ge=1)
    generator_lr: float = parameter(0.1, "learning rate of the codes", source="ours", gt=0)
    l2: float = parameter(
        1.0, "weight of the difference's norm, lambda 1", source="ROG Eq. 20; value ours", ge=0
    )
    lpips: float = parameter(
        1.0, "weight of LPIPS, lambda 2", source="ROG Eq. 20; value ours", ge=0
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        """Refuse images that LPIPS does not take, and a search for nothing.

        Raises:
            IncompatibleError: see `AttackSpec.check`.
        """
        super().check(dataset, model, client)
        if not self.l2 and not self.lpips:
            raise IncompatibleError(f"attack {self} is to find nothing; give l2 or lpips a weight")
        if self.lpips and dataset.shape[0] not in CHANNELS:
            raise IncompatibleError(
                f"attack {self} measures LPIPS, which takes 1 or 3 channels, and images of "
                f"{dataset} have {dataset.shape[0]}; use lpips=0"
            )

    @property
    @override
    def evaluations(self) -> int:
        """Of both searches."""
        return super().evaluations + self.generator_iterations

    def search_parts(self) -> SearchParts:
        """How codes are sought."""
        return SearchParts(
            start=Normal(),
            optimizer=Adam(lr=self.generator_lr),
            iterations=self.generator_iterations,
        )

    @override
    def traits(self) -> AttackSummary:
        terms = {"norm": self.l2, "LPIPS": self.lpips}
        loss = " and ".join(term for term, weight in terms.items() if weight)
        codes = AttackSummary(
            losses=(f"{loss} of images",),
            terms=("images of a generator",),
            optimizers=(str(self.search_parts().optimizer),),
            labels=LABELS[self.labels],
        )
        return super().traits().then(codes)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """See `AttackSpec.reconstruct`.

        Raises:
            IncompatibleError: the generator knows other classes than the victims'.
            ArtifactError: the weights of LPIPS are missing, and it is to be measured.
        """
        from gleak.matching.engine import solve
        from gleak.matching.image_inversion import GeneratorInversion

        generator, terms = self._generator(observation), self._terms(observation)
        coarse = super().reconstruct(observation)
        problem = GeneratorInversion.of(coarse, observation, self.search_parts(), generator, terms)
        own = replace(observation, seed=derived_seed(observation.seed, "generator codes"))
        found = solve(problem, own)
        return replace(found, converged=found.converged & coarse.converged)

    def _generator(self, observation: Observation) -> ImageGenerator:
        """The network that it brings."""
        found = cast("ImageGenerator", observation.knowledge[self.generator.name])
        if found.classes != observation.classes:
            raise IncompatibleError(
                f"attack {self}: its generator knows {found.classes} classes, and the victims are "
                f"of {observation.classes}; choose one of the same classes"
            )
        return found

    def _terms(self, observation: Observation) -> Terms:
        """Those of Eq. 20 that have a weight."""
        from gleak.matching.image_inversion import euclidean, perceptual

        like = next(iter(observation.update.values()))
        norm = [(self.l2, euclidean)] if self.l2 else []
        return [*norm, (self.lpips, perceptual(like))] if self.lpips else norm
