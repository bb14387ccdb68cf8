"""Comparisons, models and datasets that tests of metrics measure."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.registry import parse
from gleak.metrics.base import Comparison
from gleak.models.broadcast import with_state


def changed(comparison: Comparison, **values: Any) -> Comparison:
    """A comparison with other fields, its own or those of the truth."""
    own = {field.name for field in fields(Comparison)}
    of_truth = {key: values.pop(key) for key in [*values] if key not in own}
    return replace(comparison, private=replace(comparison.private, **of_truth), **values)


def model_of(parameters: dict[str, np.ndarray], **values: Any) -> Model:
    """A model of ten classes of colour images that was not trained."""
    defaults = {
        "model": "custom",
        "classes": 10,
        "input_shape": np.array([3, 32, 32]),
        "buffers": {},
        "train_loss": np.zeros(0),
        "test_accuracy": np.zeros(0),
    }
    return Model(parameters=parameters, **{**defaults, **values})


def fresh_model(spec: str, shape: tuple[int, ...], classes: int) -> Model:
    """A model as torch initialises it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = parse("model", spec).build(shape, classes)
    blank = model_of({}, model=spec, classes=classes, input_shape=np.array(shape))
    return with_state(blank, network)


def train_split(pixels: np.ndarray, classes: int) -> Dataset:
    """Training samples alone, one of each class after the other."""
    labels = np.arange(len(pixels)) % classes
    return Dataset(
        train_inputs=pixels.astype(np.uint8),
        train_labels=labels,
        test_inputs=pixels[:0].astype(np.uint8),
        test_labels=labels[:0],
        class_names=np.array([str(label) for label in range(classes)]),
    )
