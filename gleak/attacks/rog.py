"""Reconstruction from obfuscated gradients: few unknowns, and knowledge of images."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import model_validator
from typing_extensions import override

from gleak.attacks.matching import MatchingAttack
from gleak.core.registry import nested, register
from gleak.core.spec import parameter
from gleak.knowledge.autoencoder import Codec
from gleak.knowledge.tagger import Tagger
from gleak.matching.codes.base import CodeSpec
from gleak.matching.codes.sample_codes import Bicubic, Learned
from gleak.matching.distances.base import DistanceSpec
from gleak.matching.distances.euclidean import L2
from gleak.matching.optimizers.first_order import Adam
from gleak.matching.parts import ClientModel, Finish, LabelRule, Parts
from gleak.matching.starts.base import StartSpec
from gleak.matching.starts.random_values import Uniform


@register("rog")
class ROG(MatchingAttack):
    """Adam on the codes of images, whose decoded images have the gradient (Eq. 13 and 14).

    As published there is no prior (``tv``), and values are not kept in [0, 1]. It begins at the
    broadcast parameters and goes through all local steps; the authors' code begins at those the
    client ended with, which a server does not have before it has applied the update. Against signs
    alone, ``distance=signs`` and ``finish=equalized`` (Eq. 15 and below).
    """

    source = "Yue et al. 2023"
    modalities: ClassVar[frozenset[str]] = frozenset({"image"})
    budget_fields: ClassVar[frozenset[str]] = MatchingAttack.budget_fields | {"tagger"}
    tuned: ClassVar[frozenset[str]] = frozenset({"tv"})

    iterations: int = parameter(100, "budget of one victim", source="ROG section 4.2", ge=1)
    client_model: ClientModel = parameter(
        "unrolled", "how local steps are repeated", source="ROG section 4.1"
    )
    lr: float = parameter(0.05, "learning rate at the start", source="ROG's code", gt=0)
    code: Annotated[CodeSpec, nested("code")] = parameter(
        Bicubic(), "what stands for an image among the unknowns", source="ROG section 4.2"
    )
    codec: Annotated[Codec, nested("knowledge")] | None = parameter(
        None, "an autoencoder, whose codes stand for images in place of code", source="ROG Figure 4"
    )
    start: Annotated[StartSpec, nested("start")] = parameter(
        Uniform(), "first dummy input, before it is coded", source="ROG section 4.2"
    )
    labels: LabelRule = parameter(
        "auto", "how labels are found", source="ours; ROG takes them for known"
    )
    distance: Annotated[DistanceSpec, nested("distance")] = parameter(
        L2(), "between gradients", source="ROG Equations 14 and 15"
    )
    tv: float = parameter(
        0.0,
        "weight of the total variation of the decoded images",
        source="ours; ROG has none",
        ge=0,
    )
    finish: Finish = parameter(
        "cut", "how images come into [0, 1] at the end", source="ROG section 4.3, signSGD"
    )
    tagger: Annotated[Tagger, nested("knowledge")] | None = parameter(
        None, "by what the score jaccard tags images; none: no such score", source="ROG section 6"
    )

    @model_validator(mode="after")
    def _check_codes(self) -> Self:
        if self.codec is not None and self.code != Bicubic():
            raise ValueError(f"images have one code: leave out codec or code={self.code}")
        return self

    @override
    def parts(self) -> Parts:
        return Parts(
            start=self.start,
            labels=self.labels,
            code=self.code if self.codec is None else Learned(),
            distance=self.distance,
            optimizer=Adam(lr=self.lr, schedule="cosine", floor=0.1),
            finish=self.finish,
            total_variation=self.tv,
            **self.common(),
        )
