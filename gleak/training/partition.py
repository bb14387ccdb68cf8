"""How the samples of a training split are divided among clients."""

from __future__ import annotations

import numpy as np


def divide(
    labels: np.ndarray, clients: int, alpha: float | None, random: np.random.Generator
) -> list[np.ndarray]:
    """Positions of each client's samples; every sample is held by one client.

    Args:
        labels: Shape (M), of the split; M is at least ``clients``.
        clients: among whom to divide; each gets one sample at least.
        alpha: None for equal random shares, else of the Dirichlet distribution that each class's
            samples are divided by (Yurochkin et al. 2019).
        random: the stream to draw from.

    Returns:
        For each client, Shape (n_k).
    """
    if alpha is None:
        return np.array_split(random.permutation(len(labels)), clients)
    shares: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        parts = random.dirichlet(np.full(clients, alpha))
        edges = (np.cumsum(parts)[:-1] * len(members)).astype(int)
        for share, some in zip(shares, np.split(members, edges), strict=True):
            share.extend(some.tolist())
    for share in shares:
        if not share:
            share.append(max(shares, key=len).pop())
    return [np.array(share) for share in shares]
