"""Named random streams: each purpose and victim has its own, whatever else is drawn.

A stream depends on the seed, the purpose and the indices alone. So victim 3 draws the same numbers
among eight victims as among a hundred, and a new consumer of randomness disturbs no old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

LARGEST_SEED = 2**31


def stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """The numpy stream of one purpose.

    Args:
        seed: of the run, not negative.
        purpose: what is drawn ("batches", say).
        *indices: of a victim, a round, a restart; not negative.
    """
    return np.random.default_rng(_sequence(seed, purpose, indices))


def derived_seed(seed: int, purpose: str) -> int:
    """A seed of its own for whoever must not draw what others draw from the first one."""
    return int(stream(seed, purpose).integers(LARGEST_SEED))


def torch_stream(seed: int, purpose: str, *indices: int) -> torch.Generator:
    """The torch stream of one purpose, on the CPU so that a GPU changes no draw; see `stream`."""
    import torch

    state = _sequence(seed, purpose, indices).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


@contextmanager
def drawing_from(stream: torch.Generator) -> Iterator[None]:
    """Let torch's own random numbers, in the block, be a stream's from its beginning.

    After the block they go on where they were before it, on every device.
    """
    import torch

    with torch.random.fork_rng(devices=range(torch.accelerator.device_count())):
        torch.manual_seed(stream.initial_seed())
        yield


def _sequence(seed: int, purpose: str, indices: tuple[int, ...]) -> np.random.SeedSequence:
    name = int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "big")
    return np.random.SeedSequence(seed, spawn_key=(name, *map(int, indices)))
