"""Base classes of the gradient matching attacks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.attacker import SearchCost
from gleak.attacks.base import LABELS, AttackSpec, AttackSummary, terms_of
from gleak.attacks.matching.choice import check_gradients
from gleak.attacks.matching.codes import CodeSpec, Normalised, Pixels
from gleak.attacks.matching.distances import Cosine, DistanceSpec
from gleak.attacks.matching.engine import joined_searches, match
from gleak.attacks.matching.gradient_matching import skipped_parameters
from gleak.attacks.matching.label_inference import RULES, check_rule
from gleak.attacks.matching.optimizers import Adam
from gleak.attacks.matching.parts import ClientModel, Compared, Draws, Parts, Result
from gleak.attacks.matching.priors import TotalVariation
from gleak.attacks.matching.starts import Normal, StartSpec
from gleak.attacks.observation import Observation
from gleak.attacks.observed_network import has_hidden_zeros, is_kinked, reads_samples
from gleak.clients.base import ClientSpec
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.registry import nested
from gleak.core.spec import FILE_NAME, parameter
from gleak.data.base import DatasetSpec
from gleak.knowledge.postprocessor import Postprocessor
from gleak.models.base import ModelSpec
from gleak.models.batching import memory_slices
from gleak.models.parameters import trained_parameters
from gleak.models.stochastic import sampling
from gleak.runtime.seeding import derived_seed

Start = Annotated[StartSpec, nested("start")]
Code = Annotated[CodeSpec, nested("code")]
Distance = Annotated[DistanceSpec, nested("distance")]
TV = (
    "weight of the total variation (images): mean absolute difference between neighbours, along "
    "height plus width, in intensities"
)


class MatchingAttack(AttackSpec):
    """Base class of attacks that run one search with `gleak.attacks.matching.parts.Parts`."""

    budget_fields: ClassVar[frozenset[str]] = frozenset({"iterations"})
    takes_intervals: ClassVar[bool] = True

    iterations: int = parameter(
        300, "budget of one victim, restarts included", source="CPL section 4.1", ge=1
    )

    compared: Compared = parameter(
        "sent",
        "values matched: those sent, those not zero (against masks such as Soteria's), or all",
        source="ours",
    )
    client_model: ClientModel = parameter(
        "one_step", "model of local steps", source="CPL Algorithm 1; unrolled: InvertGrad"
    )

    skip: str | None = parameter(
        None,
        "layers or parameters left out of the match: names with - between them; first_dense, "
        "classifier",
        source="ours; after Balunovic et al. 2022",
        pattern=FILE_NAME,
    )
    draws: Draws = parameter(
        "mean",
        "random numbers of variational layers (PRECODE): zero, their mean, or searched",
        source="ours; searched: after Balunovic et al. 2022",
    )

    postprocessor: Annotated[Postprocessor, nested("knowledge")] | None = parameter(
        None, "network that enhances the reconstructed images", source="ROG section 4.2"
    )

    seeds: int = parameter(1, "searches, each from a start of its own", source="ours", ge=1)
    result: Result = parameter(
        "lowest",
        "of several searches: that of least objective, or the mean of their samples",
        source="lowest: InvertGrad; mean: GradInversion",
    )

    @abstractmethod
    def parts(self) -> Parts:
        """Return the components of the search."""

    def proposals(self, observation: Observation, evaluations: int) -> Sequence[Self]:
        self.check_observation(observation)
        return [self.fitted(observation, evaluations)]

    def fitted(self, observation: Observation, evaluations: int) -> Self:
        """Return the attack with a budget, and the fields that suit what is observed."""
        several = not observation.protocol.shows_gradient
        masked = has_hidden_zeros(observation)
        drawn = sampling(observation.model) and not several
        fields = {
            "iterations": max(1, evaluations // self.parts().optimizer.cost_per_iteration),
            "client_model": "unrolled" if several else "one_step",
            "compared": "nonzero" if masked else "sent",
            "draws": "searched" if drawn else "mean",
        }
        return self.model_copy(update=fields)

    def common(self) -> dict[str, Any]:
        """Return the components that are fields of every matching attack."""
        names = ("iterations", "compared", "client_model", "draws", "skip")
        return {name: getattr(self, name) for name in names}

    def summary(self) -> AttackSummary:
        parts = self.parts()
        used = {
            "codes": not isinstance(parts.code, Pixels | Normalised),
            "layer weights": parts.layers is not None,
            "label term": parts.label_term > 0,
        }
        return AttackSummary(
            losses=(str(parts.distance),),
            terms=(*(text for text, present in used.items() if present), *terms_of(parts)),
            optimizers=(str(parts.optimizer),),
            labels=LABELS[parts.labels],
        )

    def check(self, dataset: DatasetSpec, model: ModelSpec, client: ClientSpec) -> None:
        super().check(dataset, model, client)
        try:
            self.parts().check(dataset)
        except IncompatibleError as error:
            raise IncompatibleError(f"attack {self}: {error}") from None
        steps = client.protocol.local_steps
        if self.draws == "searched" and self.client_model == "unrolled" and steps > 1:
            raise IncompatibleError(
                f"attack {self}: clients of {client} draw in each of {steps} steps, "
                "and one step's random numbers are searched; use client_model=one_step"
            )
        samples = client.protocol.batch_size
        if self.result == "mean" and self.seeds == 1:
            raise IncompatibleError(f"attack {self} has one search and no mean; add seeds=4, say")
        if self.result == "mean" and self.parts().labels == "joint":
            raise IncompatibleError(
                f"attack {self}: searches that optimise labels may order samples differently, so "
                "they have no mean; use result=lowest, or other labels"
            )
        if dataset.classes is not None:
            self._check_labels(samples, dataset.classes, f"classes of {dataset}")
        if self.parts().labels == "known" and samples < client.batch_size:
            raise IncompatibleError(
                f"attack {self}: labels are granted for all {client.batch_size} samples of a "
                f"client, but an update of {client} contains {samples} of them; use labels=rows"
            )

    def check_network(
        self, network: torch.nn.Module, shape: tuple[int, ...], classes: int, client: ClientSpec
    ) -> None:
        super().check_network(network, shape, classes, client)
        check_gradients(network, client.loss, shape, classes)
        skipped_parameters(network, shape, trained_parameters(network), self.skip)
        if self.draws == "searched" and not sampling(network):
            raise IncompatibleError(
                f"attack {self} searches what variational layers draw, and this model has none; "
                "leave out draws"
            )
        self.parts().code.check_network(network)
        rule = self.parts().labels
        if rule in RULES:
            check_rule(network, shape, classes, rule)
        self._check_labels(client.protocol.batch_size, classes, "classes")

    def _check_labels(self, samples: int, classes: int, whose: str) -> None:
        """Raise `IncompatibleError` if the label rule cannot return enough labels."""
        if self.parts().labels in ("sign", "rows") and samples > classes:
            raise IncompatibleError(
                f"attack {self} finds no label twice, but {samples} samples in {classes} {whose} "
                "repeat some; use labels=auto"
            )

    @property
    def grants(self) -> frozenset[str]:
        """Grants of the start, and the labels if the spec says that they are known."""
        known = {"labels"} if self.parts().labels == "known" else set()
        return self.parts().start.grants | known

    def cost(self) -> SearchCost:
        parts = self.parts()
        return SearchCost(
            evaluations=self.seeds * self.iterations * parts.optimizer.cost_per_iteration,
            repeats_local_steps=parts.client_model == "unrolled",
            state=parts.optimizer.bytes_per_unknown(),
        )

    def reconstruct(self, observation: Observation) -> Reconstruction:
        """Return the result of all searches, postprocessed; the first search is that of seeds=1."""
        searches = [self.search(observation)]
        for number in range(1, self.seeds):
            seed = derived_seed(observation.seed, f"search {number}")
            searches.append(self.search(replace(observation, seed=seed)))
        result = joined_searches(searches, self.result) if len(searches) > 1 else searches[0]
        if self.postprocessor is None:
            return result
        network = observation.knowledge["postprocessor"]
        images = torch.from_numpy(result.inputs).flatten(0, 1).to(next(network.parameters()))
        with torch.no_grad():
            chunks = memory_slices(len(images), images.shape[1:])
            enhanced = torch.cat([network(images[chunk]) for chunk in chunks])
        inputs = enhanced.clamp(0, 1).float().cpu().numpy().reshape(result.inputs.shape)
        return replace(result, inputs=inputs)

    def search(self, observation: Observation) -> Reconstruction:
        """Return the result of gradient matching, before postprocessing."""
        return match(observation, self.parts())


class QuasiNewtonAttack(MatchingAttack):
    """Base class of the attacks by L-BFGS on the squared distance: DLG, iDLG and CPL.

    With a fixed step L-BFGS sometimes diverges or stalls. This shows in the gradient distance,
    without the truth, and the search restarts within the same budget. The papers stop there; so do
    these attacks with restarts=0.
    """

    budget_fields: ClassVar[frozenset[str]] = frozenset({"iterations", "threshold"})
    superseded: ClassVar[str] = "map is the same search with a line search and a prior"

    threshold: float = parameter(
        2e-8,
        "squared gradient distance at convergence, relative to the gradient's squared norm",
        source="ours; CPL's 1e-4 is about 1e-7 of a LeNet's squared norm",
        gt=0,
    )
    restarts: int = parameter(20, "fresh starts after divergence or a stall", source="ours", ge=0)
    patience: int = parameter(
        200, "evaluations without improvement that count as a stall", source="ours", ge=1
    )

    def common(self) -> dict[str, Any]:
        stopping = {name: getattr(self, name) for name in ("threshold", "restarts", "patience")}
        return {**super().common(), **stopping}


class SignedAdamAttack(MatchingAttack):
    """Base class of the attacks by the search of InvertGrad: signed Adam on the cosine distance.

    The objective includes the total variation, and values are clipped to the box of valid images.
    Rounded values and signs are matched better by ``distance=likelihood``.
    """

    tuned: ClassVar[frozenset[str]] = frozenset({"tv"})

    iterations: int = parameter(4800, "budget of one victim", source="InvertGrad reference", ge=1)
    lr: float = parameter(
        0.1, "learning rate; a tenth after 3/8, 5/8 and 7/8", source="InvertGrad", gt=0
    )
    tv: float = parameter(0.015, TV, source="ours, chosen on training images", ge=0)
    start: Start = parameter(Normal(), "first dummy input", source="InvertGrad")
    distance: Distance = parameter(
        Cosine(), "between gradients", source="InvertGrad; likelihood: ours"
    )
    code: Code = parameter(
        Pixels(),
        "what is searched, in whose unit learning rates are; normalised: as InvertGrad's code does",
        source="ours",
    )

    def check_observation(self, observation: Observation) -> None:
        super().check_observation(observation)
        if not is_kinked(observation):
            raise IncompatibleError("map finds more in networks without kinks")
        if reads_samples(observation):
            raise IncompatibleError("the samples are read from the gradient of a dense first layer")

    def common(self) -> dict[str, Any]:
        return {
            **super().common(),
            "start": self.start,
            "distance": self.distance,
            "code": self.code,
            "optimizer": Adam(lr=self.lr, signed=True, schedule="steps"),
            "priors": (TotalVariation(self.tv),),
            "box": True,
        }
