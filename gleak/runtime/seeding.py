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


def numpy_stream(generator: torch.Generator) -> np.random.RandomState:
    """Return numpy's older generator, which frameworks use, with a seed drawn from a stream."""
    return np.random.RandomState(int(torch.randint(2**32, (), generator=generator)))


@contextmanager
def drawing_from(stream: torch.Generator) -> Iterator[None]:
    """Let torch's global generators of all devices draw a stream from its start in the block."""
    with own_draws():
        torch.manual_seed(stream.initial_seed())
        yield


@contextmanager
def own_draws() -> Iterator[None]:
    """Restore torch's global generators after the block; those of GPUs without starting CUDA."""
    started = torch.cuda.is_initialized()
    gpus = range(torch.cuda.device_count() if started else 0)
    try:
        with torch.random.fork_rng(gpus, device_type="cuda"):
            yield
    finally:
        if not started:  # a seed set in the block is that of GPUs that are started later
            torch.cuda.manual_seed_all(torch.initial_seed())


def _sequence(seed: int, purpose: str, indices: tuple[int, ...]) -> np.random.SeedSequence:
    name = int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "big")
    return np.random.SeedSequence(seed, spawn_key=(name, *map(int, indices)))
