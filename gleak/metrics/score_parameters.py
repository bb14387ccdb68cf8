"""Scoring of broadcast parameters: a client's audit before training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.errors import RefusedError
from gleak.core.lazy import pandas as pd
from gleak.metrics.audits.base import Broadcast
from gleak.metrics.base import ParametersMetricSpec, metrics_of
from gleak.metrics.score_model import score_subject
from gleak.metrics.score_table import save_refusal


def score_parameters(
    parameters: Path,
    dataset: Path | None,
    output: Path,
    levels: Mapping[str, str],
    seed: int,
    metrics: Sequence[ParametersMetricSpec] | None = None,
) -> pd.DataFrame:
    """Audit broadcast parameters and write the table of scores.

    Args:
        parameters: ``parameters.h5``, or the ``model.h5`` of an honest server.
        dataset: ``dataset.h5``, from whose train split the client draws; None: the audit uses the
            parameters alone.
        output: table to write, ``scores.csv``; equal inputs give equal bytes.
        levels: spec string of each level up to the crafting.
        seed: seed of the run.
        metrics: metrics to compute; None for every registered one of parameters, with its defaults.

    Returns: The table, in the form of `gleak.metrics.score_table`: one row per metric, for victim
        0, later levels and grants empty; an audit that does not apply is unavailable. For refused
        parameters, one row with the reason.

    Raises:
        ArtifactError: a file is invalid.
        IncompatibleError: the dataset does not fit the model.
    """
    try:
        sent = Model.read(parameters)
    except RefusedError as error:
        return save_refusal(levels, str(error), output)
    samples = None if dataset is None else Dataset.read(dataset)
    broadcast = Broadcast(sent, samples, seed)
    chosen = metrics_of("crafting") if metrics is None else metrics
    return score_subject(chosen, broadcast, output, levels)
