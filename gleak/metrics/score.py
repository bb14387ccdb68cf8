"""Scoring of reconstructions, trained models and broadcast parameters, as tables in long form."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.model import Model
from gleak.artifacts.private import Private
from gleak.artifacts.reconstruction import Reconstruction
from gleak.core.errors import ArtifactError, RefusedError
from gleak.knowledge.loading import check_disjoint, load_knowledge
from gleak.metrics import score_table
from gleak.metrics.audits.base import Broadcast, ParametersMetricSpec
from gleak.metrics.base import (
    Comparison,
    MetricSpec,
    MetricUnavailable,
    ModelMetricSpec,
    metrics_of,
)
from gleak.metrics.reconstruction import assignment
from gleak.metrics.reconstruction.assignment import UNASSIGNED, gather
from gleak.metrics.score_table import LEVEL_COLUMNS, OK, TYPES, UNAVAILABLE
from gleak.runtime import provenance

logger = logging.getLogger(__name__)


def score(
    private: Path,
    output: Path,
    columns: Mapping[str, str],
    reconstruction: Path | None,
    metrics: Sequence[MetricSpec] | None = None,
    *,
    knowledge: Iterable[Path] = (),
    evaluators: Collection[Path] = (),
    dataset: Path | None = None,
) -> pd.DataFrame:
    """Measure a reconstruction and write the table of scores.

    Args:
        private: the truth, ``private.h5``.
        output: table to write, ``scores.csv``; equal inputs give equal bytes.
        columns: spec string of each level, and ``grants``, what the attack was granted.
        reconstruction: ``reconstruction.h5``, with its ``provenance.json`` beside it if there is
            one; None for the truth control, in which the truth itself is the estimate.
        metrics: metrics to compute; None for every registered metric of reconstructions, with its
            defaults. Those that do not apply are left out.
        knowledge: knowledge files of the attack; none may be trained on a victim's sample.
        evaluators: networks that score the attack; likewise.
        dataset: ``dataset.h5`` of the victims' samples, for metrics that need others like them.

    Returns:
        The table, in the form of `gleak.metrics.score_table`; the file has nine digits of each
        value. For a cell that was refused in an earlier job, one row with its reason.

    Raises:
        ArtifactError: a file is invalid, or the two do not belong together.
        IncompatibleError: knowledge was trained on a victim's sample; names its file.
    """
    try:
        comparison = compare(private, reconstruction, columns, knowledge, evaluators, dataset)
    except RefusedError as error:
        return score_table.save_refusal(columns, str(error), output)
    chosen = metrics_of("attack") if metrics is None else metrics
    computed = dict.fromkeys(each for metric in chosen for each in metric.each(comparison))
    measured = [_measure(metric, comparison) for metric in computed]
    fixed = {name: columns[name] for name in (*LEVEL_COLUMNS, "grants")}
    table = pd.concat([score_table.empty_scores(), *measured]).assign(**fixed, reason="")
    table = table.astype(TYPES).reset_index(drop=True)
    if reconstruction is not None:
        _warn_if_saturated(table, reconstruction)
    score_table.save_scores(table, output)
    return table


def compare(
    private: Path,
    reconstruction: Path | None,
    levels: Mapping[str, str] | None = None,
    knowledge: Iterable[Path] = (),
    evaluators: Collection[Path] = (),
    dataset: Path | None = None,
) -> Comparison:
    """Read the truth and a reconstruction, and match them; arguments and errors as for `score`."""
    truth = Private.read(private)
    check_disjoint(truth, str(private), [*knowledge, *evaluators])
    source = None if dataset is None else Dataset.read(dataset)
    if reconstruction is None:
        return replace(match_to_truth(truth, None, levels=levels), dataset=source)
    found = Reconstruction.read(reconstruction)
    _check_fit(private, truth, reconstruction, found)
    folder, shape = reconstruction.parent, truth.inputs.shape[2:]
    recorded = provenance.load(folder) if (folder / provenance.FILE).is_file() else {}
    networks = dict(load_knowledge(path, shape) for path in evaluators)
    matched = match_to_truth(truth, found, recorded, levels)
    return replace(matched, evaluators=networks, dataset=source)


def match_to_truth(
    truth: Private,
    found: Reconstruction | None,
    provenance: Mapping[str, Any] | None = None,
    levels: Mapping[str, str] | None = None,
) -> Comparison:
    """Match the samples and labels of a reconstruction to the truth; None for the truth control."""
    estimate, labels = truth.inputs, truth.labels
    if found:
        estimate = gather(found.inputs, assignment.match_samples(truth, found), np.nan)
        labels = np.where(assignment.found_mask(found), found.labels, UNASSIGNED)
        labels = gather(labels, assignment.assign_labels(truth.labels, labels), UNASSIGNED)
    return Comparison(truth, estimate, labels, found, dict(provenance or {}), levels or {})


def _check_fit(private: Path, truth: Private, reconstruction: Path, found: Reconstruction) -> None:
    if not found.spec.startswith(truth.spec):
        raise ArtifactError(
            f"{reconstruction}: made for {found.spec}, but {private} for {truth.spec}"
        )
    facts = {
        "modality": (truth.modality, found.modality),
        "victims": (len(truth.inputs), len(found.inputs)),
        "samples of shape": (truth.inputs.shape[2:], found.inputs.shape[2:]),
    }
    for what, (wanted, given) in facts.items():
        if wanted != given:
            raise ArtifactError(
                f"{reconstruction}: {what} {given}, but {private} has {what} {wanted}; "
                "they belong to different experiments: delete the reconstruction and run again"
            )


def measure(metric: MetricSpec, comparison: Comparison) -> np.ndarray:
    """Compute a metric, with its ``unmatched`` value for samples without a reconstruction.

    Shapes and errors are those of `MetricSpec.measure`.
    """
    values = metric.measure(comparison)
    if metric.per == "victim":
        return values
    return np.where(metric.matched(comparison), values, metric.unmatched)


def _measure(metric: MetricSpec, comparison: Comparison) -> pd.DataFrame:
    """Return the rows of one metric: victim, sample, metric, value and status."""
    status = np.where(comparison.converged, OK, score_table.NOT_CONVERGED)
    try:
        values = measure(metric, comparison)
        if metric.per == "sample":
            matched = metric.matched(comparison)
            status = np.where(matched, status[:, None], score_table.UNMATCHED)
    except MetricUnavailable as reason:
        level = logging.WARNING if metric.per == "sample" else logging.INFO
        logger.log(level, "metric %s is unavailable: %s", metric, reason)
        shape = comparison.truth_labels.shape if metric.per == "sample" else status.shape
        values, status = np.full(shape, np.nan), np.full(shape, UNAVAILABLE)
    victim, *sample = (index.ravel() for index in np.indices(status.shape))
    return pd.DataFrame(
        {
            "victim": victim,
            "sample": pd.array(sample[0] if sample else [pd.NA] * len(victim), dtype="Int64"),
            "metric": str(metric),
            "value": values.ravel(),
            "status": status.ravel(),
        }
    )


def _warn_if_saturated(table: pd.DataFrame, reconstruction: Path) -> None:
    """Warn if a metric is the same for every image: its limit was measured, not the attack."""
    for metric, rows in table[table["metric"].isin(["psnr", "ssim"])].groupby("metric"):
        values = rows["value"].dropna()
        if len(values) > 1 and values.nunique() == 1:
            logger.warning(
                "%s: %s is %.6g for every image; the evaluation looks unsound (a saturated metric)",
                reconstruction,
                metric,
                values.iloc[0],
            )


def score_model(
    model: Path,
    output: Path,
    levels: Mapping[str, str],
    metrics: Sequence[ModelMetricSpec] | None = None,
) -> pd.DataFrame:
    """Measure a trained model and write the table of scores.

    Args:
        model: ``model.h5``.
        output: table to write, ``scores.csv``; equal inputs give equal bytes.
        levels: spec string of each level up to the training.
        metrics: metrics to compute; None for every registered one of models, with its defaults.

    Returns:
        The table, in the form of `gleak.metrics.score_table`: one row per metric, for victim 0,
        later levels and grants empty; for a refused model, one row with the reason.

    Raises:
        ArtifactError: the file is invalid.
    """
    try:
        subject = Model.read(model)
    except RefusedError as error:
        return score_table.save_refusal(levels, str(error), output)
    chosen = metrics_of("training") if metrics is None else metrics
    return score_subject(chosen, subject, output, levels)


def score_parameters(
    parameters: Path,
    dataset: Path | None,
    output: Path,
    levels: Mapping[str, str],
    seed: int,
    metrics: Sequence[ParametersMetricSpec] | None = None,
) -> pd.DataFrame:
    """Audit broadcast parameters and write the table of scores, as `score_model` does.

    The parameters are ``parameters.h5``, or the ``model.h5`` of an honest server. The client draws
    from the train split of ``dataset.h5``; without it, audits use the parameters alone.

    Raises:
        ArtifactError: a file is invalid.
        IncompatibleError: the dataset does not fit the model.
    """
    try:
        sent = Model.read(parameters)
    except RefusedError as error:
        return score_table.save_refusal(levels, str(error), output)
    broadcast = Broadcast(sent, None if dataset is None else Dataset.read(dataset), seed)
    chosen = metrics_of("crafting") if metrics is None else metrics
    return score_subject(chosen, broadcast, output, levels)


def score_subject(
    metrics: Iterable[Any], subject: object, output: Path, levels: Mapping[str, str]
) -> pd.DataFrame:
    """Compute metrics with one value per subject, and write the table of scores."""
    fixed = {**dict.fromkeys(LEVEL_COLUMNS, ""), **levels, "victim": 0, "grants": "", "reason": ""}
    rows = []
    for metric in metrics:
        try:
            value, status = metric.measure(subject), OK
        except MetricUnavailable as reason:
            logger.warning("metric %s is unavailable: %s", metric, reason)
            value, status = np.nan, UNAVAILABLE
        rows.append({**fixed, "metric": str(metric), "value": value, "status": status})
    table = pd.DataFrame(rows, columns=score_table.COLUMNS).astype(TYPES)
    score_table.save_scores(table, output)
    return table
