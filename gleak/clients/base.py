"""Base class of clients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from gleak.artifacts.protocol import Loss, Protocol
from gleak.clients.augmentation import Augmentation, augmented
from gleak.clients.gradient_descent import LocalDescent, LocalGradient
from gleak.core.errors import IncompatibleError
from gleak.core.lazy import torch
from gleak.core.spec import Spec, parameter
from gleak.data.base import DatasetSpec
from gleak.models import batch_norm
from gleak.models.base import ModelSpec
from gleak.models.examination import count_logits
from gleak.models.parameters import Tensors


class ClientSpec(Spec):
    """Base class of clients: their batches, and the update computed from a batch."""

    kind: ClassVar[str] = "client"
    budget_fields: ClassVar[frozenset[str]] = frozenset({"victims", "repeats", "first"})

    victims: int = parameter(8, "independent clients, attacked as one batch", ge=1)
    repeats: int = parameter(
        1, "consecutive victims with the same samples, each with its own random numbers", ge=1
    )
    first: int = parameter(0, "batches of the split that are left to the victims of others", ge=0)
    batch_size: int = parameter(1, "samples of a client in one round", ge=1)
    labels: Literal["random", "unique"] = parameter("random", "unique: no label twice in one batch")
    classes: int | None = parameter(
        None,
        "number of classes in a batch, chosen at random for each victim; none: all",
        source="MKOR supplement",
        ge=1,
    )
    split: Literal["test", "train"] = parameter(
        "test", "split the samples are drawn from (train: for tuning)"
    )
    loss: Loss = parameter(
        "cross_entropy", "training loss; nll_raw is minus the raw logit of the label"
    )
    label_smoothing: float | None = parameter(
        None, "share of the label that is spread over all classes; none: no part", gt=0, le=1
    )
    autocast: Literal["bfloat16"] | None = parameter(
        None, "data type of the network's mixed precision; none: single precision"
    )
    augmentation: Augmentation | None = parameter(
        None,
        "random changes of images in every epoch: crops after padding, flips, or both; none: none",
    )
    batch_norm: Literal["evaluation", "training"] = parameter(
        "evaluation",
        "mode of batch normalisation: by running statistics, or in training by those of the batch",
        source="ours; training: GradInversion",
    )

    @property
    def draw(self) -> tuple[object, ...]:
        """Fields that determine the batches drawn from a dataset with the seed of a run.

        Clients with equal draws have the same batches in the same order, so that their results can
        be compared batch by batch: victim i has batch number first + i // repeats.
        """
        return (self.split, self.batch_size, self.labels, self.classes, self.first)

    @property
    def batches(self) -> int:
        """Number of different batches of the victims."""
        return self.victims // self.repeats

    @property
    def rounds(self) -> int:
        """Number of observed rounds of one client; the server broadcasts before each."""
        return 1

    @property
    def server_rate(self) -> float:
        """Factor of the mean update that the server subtracts between rounds."""
        return 0.0

    def training_before(self, number: int) -> Spec | None:
        """Return the training by which others change the network before round ``number``."""
        return None

    def round_positions(self, generator: torch.Generator) -> list[torch.Tensor]:
        """Return the positions of the samples of each round, Shape (B); by default all samples."""
        return [torch.arange(self.batch_size)]

    @property
    def protocol(self) -> Protocol:
        """Training of these clients as the server knows it."""
        return Protocol(
            batch_size=self.batch_size,
            mini_batch=self.batch_size,
            loss=self.loss,
            batch_norm=None if self.batch_norm == "evaluation" else self.batch_norm,
            label_smoothing=self.label_smoothing,
            autocast=self.autocast,
        )

    def run(self, network: torch.nn.Module) -> torch.nn.Module:
        """Return the broadcast network as these clients run it (`gleak.models.batch_norm`)."""
        return batch_norm.run_by_clients(network, self.batch_norm)

    def feed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the samples of an epoch as the network gets them, (B, *shape), drawn at random.

        `compute` draws those of its first epoch before all else. These are what attacks can
        recover, and what they are scored by.
        """
        return augmented(inputs, self.augmentation)

    @property
    def gradients_per_sample(self) -> float:
        """Mean number of gradients computed per sample, of all rounds, for cost estimates."""
        return 1.0

    @property
    def uses_per_sample(self) -> int:
        """Largest number of gradients in which one sample takes part, for privacy guarantees."""
        return 1

    @property
    def local_descent(self) -> LocalDescent | None:
        """Local descent with the random numbers of `compute`, for drift; None: one step only."""
        return None

    @property
    def required_specs(self) -> Mapping[str, str]:
        """Specs of other kinds that these clients require, by kind."""
        return {}

    @model_validator(mode="after")
    def _check_batches(self) -> Self:
        if self.victims % self.repeats:
            raise ValueError(
                f"victims={self.victims} is no multiple of repeats={self.repeats}; every batch "
                "must occur equally often among the victims"
            )
        needed = self.batch_size if self.labels == "unique" else 1
        if self.classes is not None and needed > self.classes:
            raise ValueError(
                f"{needed} samples with unique labels need as many classes, not "
                f"classes={self.classes}"
            )
        return self

    @abstractmethod
    def compute(
        self,
        model: torch.nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        gradient: LocalGradient | None = None,
    ) -> Tensors:
        """Compute one client's update of one round, before defences that act on updates.

        Random numbers (augmentation, dropout, the order of samples) are drawn from torch's global
        generator, which the caller sets to the victim's stream.

        Args:
            model: with the broadcast parameters, as `run` returns it; not changed.
            inputs: samples of the round, Shape (B, *shape).
            labels: Shape (B).
            gradient: substitute for the gradient of every step, if the defence has one.

        Returns:
            The update by parameter, Shape (1, *shape).
        """

    def check(self, dataset: DatasetSpec) -> None:
        """Raise `IncompatibleError` if a dataset's spec tells that it cannot supply the batches."""
        if self.augmentation and len(dataset.shape) != 3:
            raise IncompatibleError(
                f"client {self}: augmentation={self.augmentation} changes images, and samples of "
                f"{dataset} are none; leave augmentation out"
            )
        sizes = dataset.sizes
        check_batch(self, sizes[self.split] if sizes else None, dataset.classes, str(dataset))

    def check_model(self, model: ModelSpec) -> None:
        """Raise `IncompatibleError` if a model's spec tells that it lacks batch normalisation."""
        if self.batch_norm == "training" and not model.has_batch_norm:
            raise IncompatibleError(
                f"client {self} normalises by its batch, and model {model} has no batch "
                "normalisation; leave out batch_norm, or use norm=batch where the model has it"
            )

    def check_network(self, network: torch.nn.Module, shape: tuple[int, ...]) -> None:
        """Check a network in evaluation mode, which is not changed.

        Raises:
            IncompatibleError: batch normalisation is in training mode, and the network has none or
                needs larger batches; or the loss of its one logit is constant.
        """
        if self.loss == "cross_entropy" and count_logits(network, shape) == 1:
            raise IncompatibleError(
                "the network has one logit z, whose cross_entropy is zero for every sample; if it "
                "is trained by binary cross-entropy, give the network that returns "
                "torch.cat([torch.zeros_like(z), z], 1), whose cross_entropy is the same"
            )
        if self.batch_norm == "training":
            batch_norm.check_batch(network, shape, self.protocol.mini_batch)


def check_used(client: ClientSpec, protocol: Protocol) -> None:
    """Raise if local steps do not take all samples of an update, but those that are dropped.

    Attacks would search, and metrics would score, samples of which nothing was sent.
    """
    share, step = protocol.batch_size // (protocol.clients or 1), protocol.mini_batch
    used, dropped = step * protocol.local_steps, share % step if protocol.drop_last else 0
    if used < share - dropped:
        raise IncompatibleError(
            f"client {client}: {protocol.local_steps} local steps of mini_batch={step} take {used} "
            f"of the {share} samples of a client; set local_steps={-(-share // step)} for an "
            "epoch, or batch_size to the samples that the steps take"
        )


def check_batch(client: ClientSpec, size: int | None, classes: int | None, dataset: str) -> None:
    """Raise if a split of ``size`` samples in ``classes`` classes cannot supply the batches."""
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
