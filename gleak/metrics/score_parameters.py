"""Scoring of what a server broadcasts: the client's audit, before any training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.core.errors import RefusedError
from gleak.metrics.audits.base import Broadcast
from gleak.metrics.base import metrics_of
from gleak.metrics.score_model import score_subject
from gleak.metrics.score_table import save_refusal


def score_parameters(
    parameters: Path, dataset: Path | None, output: Path, levels: Mapping[str, str], seed: int
) -> pd.DataFrame:
    """Audit broadcast parameters and write the table of scores.

    Args:
        parameters: ``parameters.h5``, or the ``model.h5`` of an honest server.
        dataset: ``dataset.h5``, from whose train split the client draws; None: it looks at the
            parameters alone.
        output: the table to write, ``scores.csv``; equal inputs give equal bytes.
        levels: the spec string of each level up to the crafting.
        seed: of the run.

    Returns: The table, in the form of `gleak.metrics.score_table`: one row per metric, of victim 0,
        later levels and grants empty; an audit that says nothing is unavailable. Of parameters that
        were refused, the row that says so.

    Raises:
        ArtifactError: a file is not what it should be.
        IncompatibleError: the dataset is not the model's.
    """
    try:
        sent = Model.read(parameters)
    except RefusedError as error:
        return save_refusal(levels, str(error), output)
    samples = None if dataset is None else Dataset.read(dataset)
    broadcast = Broadcast(sent, samples, seed)
    return score_subject(metrics_of("crafting"), broadcast, output, levels)
