"""Named random streams, one for each purpose and victim, independent of all other draws.

A stream depends only on the seed, the purpose and the indices. Victim 3 draws the same numbers
among eight victims as among a hundred, and a new consumer of randomness changes no existing one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np

from gleak.core.lazy import torch

LARGEST_SEED = 2**31


def stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Return the numpy generator of one purpose.

    Args:
        seed: seed of the run, not negative.
        purpose: name of the draw ("batches", say).
        *indices: of a victim, a round, a restart; not negative.
    """
    return np.random.default_rng(_sequence(seed, purpose, indices))


def derived_seed(seed: int, purpose: str) -> int:
    """Draw a seed for a consumer that must not share draws with those of the original seed."""
    return int(stream(seed, purpose).integers(LARGEST_SEED))


def torch_stream(seed: int, purpose: str, *indices: int) -> torch.Generator:
    """Return the torch generator of one purpose, on the CPU so that a GPU changes no draw."""
    state = _sequence(seed, purpose, indices).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


@contextmanager
def drawing_from(stream: torch.Generator) -> Iterator[None]:
    """Let torch's global generators of all devices draw a stream from its start in the block."""
    with torch.random.fork_rng(devices=range(torch.accelerator.device_count())):
        torch.manual_seed(stream.initial_seed())
        yield


def _sequence(seed: int, purpose: str, indices: tuple[int, ...]) -> np.random.SeedSequence:
    name = int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "big")
    return np.random.SeedSequence(seed, spawn_key=(name, *map(int, indices)))
