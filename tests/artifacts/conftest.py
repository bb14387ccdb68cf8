from __future__ import annotations

import numpy as np
import pytest

from gleak.artifacts.encodings import Dense, Factored, Quantized, Signs, Sparse
from gleak.artifacts.private import Private
from gleak.artifacts.update import Update


@pytest.fixture
def private() -> Private:
    """Three victims of two images, 4 x 4 in colour."""
    random = np.random.default_rng(0)
    return Private(
        spec="digits/lenet",
        seed=7,
        inputs=random.random((3, 2, 3, 4, 4), dtype=np.float32),
        labels=random.integers(0, 10, (3, 2)),
        indices=np.arange(6).reshape(3, 2),
    )


@pytest.fixture
def update() -> Update:
    """Three victims and two rounds; every encoding."""
    random = np.random.default_rng(0)
    return Update(
        spec="digits/lenet",
        update={
            "features.0.weight": Dense(random.normal(size=(3, 2, 6, 3, 5, 5)).astype("f4")),
            "features.0.bias": Dense(random.normal(size=(3, 2, 6)).astype("f4")),
            "features.1.weight": Factored(
                left=random.normal(size=(3, 2, 8, 2)).astype("f4"),
                right=random.normal(size=(3, 2, 2, 54)).astype("f4"),
                shape=np.array([8, 6, 3, 3]),
            ),
            "classifier.weight": Sparse(
                indices=np.tile([0, 19, -1], (3, 2, 1)),
                values=np.tile(np.array([1.5, -2, 0], "f4"), (3, 2, 1)),
                shape=np.array([4, 5]),
            ),
            "head.weight": Quantized(
                codes=random.integers(-3, 4, (3, 2, 5, 4), dtype="i1"),
                scales=random.random((3, 2)).astype("f4"),
            ),
            "head.bias": Signs(codes=random.integers(-1, 2, (3, 2, 5), dtype="i1")),
        },
    )
