"""What every client spec provides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from gleak.core.errors import IncompatibleError
from gleak.core.spec import Spec, parameter
from gleak.local_training.base import Loss

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from gleak.data.base import DatasetSpec
    from gleak.local_training.base import LocalGradient
    from gleak.local_training.descent import LocalDescent


class ClientSpec(Spec):
    """How clients hold data and turn them into an update."""

    kind: ClassVar[str] = "client"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"victims", "repeats"})

    victims: int = parameter(8, "independent clients that are attacked, as one batch", ge=1)
    repeats: int = parameter(
        1, "victims in a row that hold the same samples, each with random numbers of its own", ge=1
    )
    batch_size: int = parameter(1, "samples behind one round of one client", ge=1)
    labels: Literal["random", "unique"] = parameter("random", "unique: no label twice in one batch")
    classes: int | None = parameter(
        None,
        "a batch is drawn from so many, chosen at random for each victim; none: all",
        source="MKOR supplement",
        ge=1,
    )
    split: Literal["test", "train"] = parameter(
        "test", "where samples come from (train: for tuning)"
    )
    loss: Loss = parameter(
        "cross_entropy", "training loss; nll_raw is minus the raw logit of the label"
    )

    @property
    def content(self) -> str:
        """What is sent: "gradient" or "difference" (weights after minus before)."""
        return "gradient"

    @property
    def rounds(self) -> int:
        """Observed rounds of one client, before each of which the server broadcasts."""
        return 1

    @property
    def server_rate(self) -> float:
        """How far the server goes against the mean of what clients send, between rounds."""
        return 0.0

    def members(self, generator: Generator) -> list[Tensor]:
        """Positions of the samples behind each round, Shape (B); here all of them."""
        import torch

        return [torch.arange(self.batch_size)]

    @property
    def protocol(self) -> dict[str, Any]:
        """What the server knows of local training: fields of `gleak.artifacts.update.Update`."""
        return {"batch_size": self.batch_size, "mini_batch": self.batch_size, "loss": self.loss}

    @property
    def update_scale(self) -> float:
        """What is sent over the mean gradient of the local steps; exact but for rounding."""
        if self.content == "gradient":
            return 1.0
        return -float(self.protocol["local_lr"] * self.protocol["local_steps"])

    @property
    def gradients_per_sample(self) -> float:
        """Gradients computed for each sample of one round, for estimates of cost."""
        return 1.0

    @property
    def local_descent(self) -> LocalDescent | None:
        """What takes its local steps, drawing random numbers as `compute` does; None: it takes one.

        See `gleak.simulation.drift`.
        """
        return None

    @property
    def required_specs(self) -> Mapping[str, str]:
        """Specs of other kinds without which these clients cannot be, by kind."""
        return {}

    @model_validator(mode="after")
    def _check_repeats(self) -> Self:
        if self.victims % self.repeats:
            raise ValueError(
                f"victims={self.victims} is no multiple of repeats={self.repeats}; every batch is "
                "to stand among the victims equally often"
            )
        return self

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        wanted = self.batch_size if self.labels == "unique" else 1
        if self.classes is not None and wanted > self.classes:
            raise ValueError(
                f"{wanted} samples with unique labels need as many classes, not "
                f"classes={self.classes}"
            )
        return self

    @abstractmethod
    def compute(
        self,
        model: nn.Module,
        inputs: Tensor,
        labels: Tensor,
        gradient: LocalGradient | None = None,
    ) -> dict[str, Tensor]:
        """One client's update of one round, before a defence that works on updates.

        Random numbers (dropout, the order of samples) are torch's own, set by the caller to the
        victim's stream.

        Args:
            model: holds the broadcast parameters; left as it is.
            inputs: of the round's samples, Shape (B, *shape).
            labels: Shape (B).
            gradient: what its defence has it take every step by; None: the mini-batch's own.

        Returns:
            For each parameter, Shape (1, *shape).
        """

    def check(self, dataset: DatasetSpec) -> None:
        """Refuse a dataset that cannot supply the batches, as far as is known before reading it.

        Raises:
            IncompatibleError: a batch larger than the split, or more classes than it has.
        """
        sizes = dataset.sizes
        check_batch(self, sizes[self.split] if sizes else None, dataset.classes, str(dataset))


def check_batch(client: ClientSpec, size: int | None, classes: int | None, dataset: str) -> None:
    """Refuse batches that a split of ``size`` samples in ``classes`` classes cannot supply.

    Raises:
        IncompatibleError: says which number is too large.
    """
    if size is not None and client.batch_size > size:
        raise IncompatibleError(
            f"client {client}: batch_size={client.batch_size} is more than the {size} samples "
            f"in the {client.split} split of {dataset}"
        )
    if classes is not None and client.classes is not None and client.classes > classes:
        raise IncompatibleError(
            f"client {client}: classes={client.classes} is more than the {classes} of {dataset}"
        )
    if client.labels == "unique" and classes is not None and client.batch_size > classes:
        raise IncompatibleError(
            f"client {client}: {client.batch_size} samples with unique labels need as many "
            f"classes, and {dataset} has {classes}"
        )
