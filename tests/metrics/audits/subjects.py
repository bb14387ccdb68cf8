from __future__ import annotations

import numpy as np
import torch

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.registry import parse
from gleak.models.broadcast import with_state


def fresh_model(spec: str, shape: tuple[int, ...], classes: int) -> Model:
    """A model as torch initialises it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = parse("model", spec).build(shape, classes)
    blank = Model(
        model=spec,
        classes=classes,
        input_shape=np.array(shape),
        parameters={},
        buffers={},
        train_loss=np.zeros(0),
        test_accuracy=np.zeros(0),
    )
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
