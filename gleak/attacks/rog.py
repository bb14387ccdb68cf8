"""Reconstruction from obfuscated gradients (ROG): few unknowns and learned image priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import model_validator

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attacker import SearchCost
from gleak.attacks.base import LABELS, AttackSummary
from gleak.attacks.matching.codes import Bicubic, Learned
from gleak.attacks.matching.distances import L2
from gleak.attacks.matching.engine import solve
from gleak.attacks.matching.image_inversion import GeneratorInversion, Terms, euclidean, perceptual
from gleak.attacks.matching.optimizers import Adam
from gleak.attacks.matching.parts import ClientModel, Finish, LabelRule, Parts, SearchParts
from gleak.attacks.matching.priors import TotalVariation
from gleak.attacks.matching.starts import Normal, Uniform
from gleak.attacks.matching_attack import Code, Distance, MatchingAttack, Start
from gleak.attacks.observation import Observation
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.data.base import DatasetSpec
from gleak.knowledge.autoencoder import Codec, Generator
from gleak.knowledge.base import GenerativeSpec, ImageGenerator
from gleak.knowledge.tagger import Tagger
from gleak.models.base import ModelSpec
from gleak.runtime.perceptual import CHANNELS
from gleak.runtime.seeding import derived_seed

LARGE = 96
"""Least side of images for which `best` runs the attack, at half of it."""
LARGE_FIELDS: dict[str, Any] = {"code": Bicubic(scale=2), "lr": 0.1, "tv": 3.0}
"""Fields for them, chosen on training photographs (docs/results/rog.md)."""


@register("rog")
class ROG(MatchingAttack):
    """Gradient matching over codes of images, by Adam (Eq. 13 and 14).

    As published there is no image prior (``tv``), and values are not clipped to [0, 1]. Local steps
    are repeated from the broadcast parameters; the authors' code starts from the client's final
    parameters, which a server does not know before it has applied the update. Against updates that
    consist of signs, use ``distance=signs`` and ``finish=equalized`` (Eq. 15 and below).
    """

    source = "Yue et al. 2023"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    budget_fields: ClassVar[frozenset[str]] = MatchingAttack.budget_fields | {"tagger"}
    tuned: ClassVar[frozenset[str]] = frozenset({"tv"})

    iterations: int = parameter(100, "budget of one victim", source="ROG section 4.2", ge=1)
    client_model: ClientModel = parameter(
        "unrolled", "model of local steps", source="ROG section 4.1"
    )
    lr: float = parameter(0.05, "learning rate at the start", source="ROG's code", gt=0)
    code: Code = parameter(
        Bicubic(), "representation of an image that is optimised", source="ROG section 4.2"
    )
    codec: Annotated[Codec, nested("knowledge")] | None = parameter(
        None, "autoencoder whose codes are optimised, in place of code", source="ROG Figure 4"
    )
    start: Start = parameter(
        Uniform(), "first dummy input, before encoding", source="ROG section 4.2"
    )
    labels: LabelRule = parameter(
        "auto", "label inference rule", source="ours; ROG takes labels as known"
    )
    distance: Distance = parameter(L2(), "between gradients", source="ROG Equations 14 and 15")
    tv: float = parameter(
        0.0,
        "weight of the total variation of the decoded images",
        source="ours; ROG has none",
        ge=0,
    )
    finish: Finish = parameter(
        "cut", "mapping of images to [0, 1] at the end", source="ROG section 4.3, signSGD"
    )
    tagger: Annotated[Tagger, nested("knowledge")] | None = parameter(
        None, "network that tags images for the score jaccard; none: no such score", source="ROG 6"
    )

    @model_validator(mode="after")
    def _check_codes(self) -> Self:
        if self.codec is not None and self.code != Bicubic():
            raise ValueError(f"images have one code: leave out codec or code={self.code}")
        return self

    def proposals(self, observation: Observation, evaluations: int) -> Sequence[Self]:
        sides = observation.input_shape[1:]
        if min(sides, default=0) < LARGE or any(side % 2 for side in sides):
            raise IncompatibleError(f"suits images with even sides of {LARGE} pixels or more")
        (attack,) = super().proposals(observation, evaluations)
        return [attack.model_copy(update=LARGE_FIELDS)]

    def parts(self) -> Parts:
        return Parts(
            start=self.start,
            labels=self.labels,
            code=self.code if self.codec is None else Learned(),
            distance=self.distance,
            optimizer=Adam(lr=self.lr, schedule="cosine", floor=0.1),
            finish=self.finish,
            priors=(TotalVariation(self.tv),),
            **self.common(),
        )


@register("rogs")
class ROGS(ROG):
    """Reconstruction by `rog`, then the most similar images of its labels that a generator makes.

    Codes of the generator are optimised by Adam from random ones (Eq. 19). The first fields, up to
    ``finish``, are those of `rog`. The norm of Eq. 20 is over all values of an image in [0, 1] and
    therefore larger for larger images. The perceptual term needs weights that are not downloaded;
    without them use ``lpips=0``. Iterations, objective and snapshots are those of the search for
    codes.
    """

    source = "Yue et al. 2023, section 6"
    budget_fields: ClassVar[frozenset[str]] = ROG.budget_fields | {"generator_iterations"}
    tuned: ClassVar[frozenset[str]] = ROG.tuned | {"l2", "lpips"}

    generator: Annotated[GenerativeSpec, nested("knowledge")] = parameter(
        Generator(), "conditional generator of images", source="ROG section 6; there BigGAN"
    )
    generator_iterations: int = parameter(
        1000, "budget of one victim's codes", source="ROG Appendix A", ge=1
    )
    generator_lr: float = parameter(0.1, "learning rate of the codes", source="ours", gt=0)
    l2: float = parameter(
        1.0, "weight of the difference's norm, lambda 1", source="ROG Eq. 20, Appendix A", ge=0
    )
    lpips: float = parameter(
        1.0, "weight of LPIPS, lambda 2", source="ROG Eq. 20, Appendix A", ge=0
    )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        if not self.l2 and not self.lpips:
            raise IncompatibleError(f"attack {self} has no objective; give l2 or lpips a weight")
        if self.lpips and dataset.shape[0] not in CHANNELS:
            raise IncompatibleError(
                f"attack {self} uses LPIPS, which takes 1 or 3 channels, but images of {dataset} "
                f"have {dataset.shape[0]}; use lpips=0"
            )

    def cost(self) -> SearchCost:
        matching = super().cost()
        return replace(matching, evaluations=matching.evaluations + self.generator_iterations)

    def search_parts(self) -> SearchParts:
        """Return the components of the search for codes."""
        return SearchParts(
            start=Normal(),
            optimizer=Adam(lr=self.generator_lr),
            iterations=self.generator_iterations,
        )

    def summary(self) -> AttackSummary:
        weights = {"norm": self.l2, "LPIPS": self.lpips}
        loss = " and ".join(term for term, weight in weights.items() if weight)
        codes = AttackSummary(
            losses=(f"{loss} of images",),
            terms=("images of a generator",),
            optimizers=(str(self.search_parts().optimizer),),
            labels=LABELS[self.labels],
        )
        return super().summary().then(codes)

    def reconstruct(self, observation: Observation) -> Reconstruction:
        generator = cast("ImageGenerator", observation.knowledge[self.generator.name])
        if generator.classes != observation.classes:
            raise IncompatibleError(
                f"attack {self}: its generator has {generator.classes} classes, but the victims' "
                f"data have {observation.classes}; choose a generator of the same classes"
            )
        terms: Terms = [(self.l2, euclidean)] if self.l2 else []
        if self.lpips:
            terms = [*terms, (self.lpips, perceptual(next(iter(observation.update.values()))))]
        coarse = super().reconstruct(observation)
        problem = GeneratorInversion.of(coarse, observation, self.search_parts(), generator, terms)
        reseeded = replace(observation, seed=derived_seed(observation.seed, "generator codes"))
        result = solve(problem, reseeded)
        return replace(result, converged=result.converged & coarse.converged)
