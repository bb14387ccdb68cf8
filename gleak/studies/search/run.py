"""Stage that runs a search and writes ``trials.csv`` and ``chosen.yaml``."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gleak.artifacts.private import Private
from gleak.attacks.base import AttackSpec
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import observe, reconstruct
from gleak.core.errors import GleakError, StoppedError, needs_extra
from gleak.core.spec import changed, field_text
from gleak.knowledge.loading import check_disjoint
from gleak.metrics.base import MetricSpec, MetricUnavailable
from gleak.metrics.score import match_to_truth, measure
from gleak.metrics.score_table import save_scores
from gleak.models.broadcast import read_model_spec
from gleak.runtime.checkpointing import FILE, Journal, origin_of
from gleak.runtime.device import device_name
from gleak.runtime.progress import Progress
from gleak.runtime.seeding import derived_seed
from gleak.studies.search.chosen import SearchOutcome
from gleak.studies.search.declaration import SpecSearch

if TYPE_CHECKING:
    import optuna

logger = logging.getLogger(__name__)

OK, FAILED = "ok", "failed"
Evaluate = Callable[[AttackSpec], float]


@dataclass(frozen=True)
class SearchTrial:
    """One trial of a search; of a failed one the spec is empty, and the value NaN."""

    spec: str
    fields: Mapping[str, str]
    value: float

    @property
    def status(self) -> str:
        return OK if self.spec else FAILED


def run_search(
    search: SpecSearch,
    update_path: Path,
    parameters_path: Path,
    granted_paths: Mapping[str, Path],
    private_path: Path,
    folder: Path,
    *,
    study: str,
    scale: str,
    seed: int,
    secret_path: Path | None = None,
    knowledge_paths: Collection[Path] = (),
    device: str = "auto",
) -> dict[str, float]:
    """Run the trials of a search on victims from the train split, and write the best spec.

    The inputs are those of the attack and the truth, ``private.h5``; ``trials.csv`` and
    ``chosen.yaml`` in the folder are equal bytes for equal inputs.

    Returns:
        Cost of earlier, interrupted runs (`gleak.runtime.checkpointing.Journal.earlier`).

    Raises:
        GleakError: the metric cannot be computed, all trials failed, or knowledge was trained on a
            victim's sample.
    """
    truth = Private.read(private_path)
    check_disjoint(truth, str(private_path), knowledge_paths)
    observation = observe(
        update_path,
        parameters_path,
        granted_paths,
        reads=search.reads,
        secret_path=secret_path,
        knowledge_paths=knowledge_paths,
        seed=seed,
        device=device,
    )
    secrets = [] if secret_path is None else [secret_path]
    files = [update_path, parameters_path, private_path, *granted_paths.values(), *secrets]
    specs = [*search.variants, search.metric, read_model_spec(parameters_path)]
    origin = origin_of(__name__, specs, [*files, *knowledge_paths], search.fingerprint, seed)
    used = device_name(next(observation.model.parameters()).device)
    with Journal(folder / FILE, origin, used) as journal:
        trials = try_specs(search, _evaluation(search, observation, truth, seed, journal), seed)
        save_scores(_table(trials), folder / "trials.csv")
        _outcome(search, trials, study, scale).write(folder / "chosen.yaml")
    return journal.earlier


def _evaluation(
    search: SpecSearch, observation: Observation, truth: Private, seed: int, journal: Journal
) -> Evaluate:
    """Return a function that computes the value of a spec once, also if the job is resumed."""
    levels = search.cell.strings()

    def evaluate(spec: AttackSpec) -> float:
        part = journal.part(str(spec))
        if not part.stored:
            tried = {**levels, "attack": str(spec)}
            part.keep({"value": _mean(search.metric, spec, observation, truth, tried, seed)})
            part.save_if_due()
        return float(part.stored["value"])

    return evaluate


def try_specs(search: SpecSearch, evaluate: Evaluate, seed: int) -> list[SearchTrial]:
    """Try the base, then proposals of a tree-structured Parzen estimator (Optuna's TPE).

    A trial fails if ``evaluate`` raises a `GleakError` or returns a value that is not finite.

    Raises:
        MetricUnavailable: ``evaluate`` raised it; it would for every other spec, too.
        MissingExtraError: Optuna is not installed.
    """
    with needs_extra("search"):
        import optuna

    proposals = _proposals(search, seed)
    trials: list[SearchTrial] = []
    with Progress(search.trials, f"search {search.name}") as progress:
        for number in range(search.trials):
            asked = proposals.ask()
            values = {name: values.suggest(asked, name) for name, values in search.ranges.items()}
            trial = _try(search, values if number else {}, evaluate)
            if trial.status == OK:
                proposals.tell(asked, trial.value)
            else:
                proposals.tell(asked, state=optuna.trial.TrialState.FAIL)
            trials.append(trial)
            progress.advance(value=trial.value)
    return trials


def _proposals(search: SpecSearch, seed: int) -> optuna.Study:
    """Create the Optuna study, with the base as its first trial; log only Optuna's warnings."""
    import optuna

    optuna.logging.disable_default_handler()
    optuna.logging.enable_propagation()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    proposals = optuna.create_study(
        direction="maximize" if search.metric.better == "higher" else "minimize",
        sampler=optuna.samplers.TPESampler(seed=derived_seed(seed, "search")),
    )
    proposals.enqueue_trial(
        {name: values.start(search.base, name) for name, values in search.ranges.items()}
    )
    return proposals


def _try(search: SpecSearch, values: Mapping[str, object], evaluate: Evaluate) -> SearchTrial:
    fields = {field: str(value) for field, value in values.items()}
    try:
        spec = changed(search.base, values)
        fields = {field: field_text(spec, field) for field in search.ranges}
        value = evaluate(spec)
    except (MetricUnavailable, StoppedError):
        raise
    except GleakError as error:
        logger.warning("search %s: a trial failed: %s", search.name, error)
        return SearchTrial("", fields, math.nan)
    if not math.isfinite(value):
        logger.warning("search %s: %s of %s is not finite", search.name, search.metric, spec)
        return SearchTrial("", fields, math.nan)
    return SearchTrial(str(spec), fields, value)


def _mean(
    metric: MetricSpec,
    spec: AttackSpec,
    observation: Observation,
    truth: Private,
    levels: Mapping[str, str],
    seed: int,
) -> float:
    """Compute the mean of the metric over all samples; not finite if a sample has no value."""
    reconstruction = reconstruct(spec, observation, seed)
    reconstruction.validate(f"reconstruction of {spec}")
    comparison = match_to_truth(truth, reconstruction, levels=levels)
    if not metric.applies(comparison):
        raise MetricUnavailable(f"metric {metric} does not apply to {'/'.join(levels.values())}")
    return float(np.mean(measure(metric, comparison)))


def _table(trials: Sequence[SearchTrial]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"trial": number, **trial.fields, "value": trial.value, "status": trial.status}
            for number, trial in enumerate(trials)
        ]
    )


def _outcome(
    search: SpecSearch, trials: Sequence[SearchTrial], study: str, scale: str
) -> SearchOutcome:
    succeeded = [trial for trial in trials if trial.status == OK]
    if not succeeded:
        raise GleakError(
            f"search {search.name!r}: none of its {len(trials)} trials gave a finite "
            f"{search.metric}; the warnings above say why"
        )
    choose = max if search.metric.better == "higher" else min
    best = choose(succeeded, key=lambda trial: trial.value)
    base = trials[0]
    outcome = SearchOutcome(
        study=study,
        scale=scale,
        search=search.name,
        chosen=best.spec,
        value=_rounded(best.value),
        base_value=_rounded(base.value) if base.status == OK else None,
        metric=str(search.metric),
        trials=len(trials),
        levels=search.cell.strings(),
        fingerprint=search.fingerprint,
    )
    logger.info("search %s: %s", search.name, outcome.summary)
    return outcome


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")
