from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pytest
from scipy.stats import binomtest

from gleak.assessment.exposure import exposures, mean_in
from gleak.assessment.findings import Exposure
from gleak.assessment.resolved import threshold_of
from gleak.metrics.score_table import COLUMNS, TYPES

CELL = {
    "dataset": "digits",
    "model": "lenet",
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd+victims=5",
    "defense": "none",
}
LABELS = "success_labels"
SSIM = threshold_of("ssim", 0.5, "image")
MSE = threshold_of("mse", 0.01, "image")


def rows(attack: str, values: Sequence[Sequence[float]], metric: str = "ssim") -> pd.DataFrame:
    """Scores of an attack: a list of the samples of each client; NaN for one not found."""
    found = [
        {
            **dict.fromkeys(COLUMNS, ""),
            **CELL,
            "attack": attack,
            "metric": metric,
            "victim": victim,
            "sample": sample,
            "value": value,
            "status": "ok" if value == value else "unmatched",
        }
        for victim, samples in enumerate(values)
        for sample, value in enumerate(samples)
    ]
    return pd.DataFrame(found, columns=COLUMNS).astype(TYPES)


def exposure(attacked: pd.DataFrame, blind: Sequence[Sequence[float]], metric: str) -> Exposure:
    """The only exposure in a metric, with samples of the blind control."""
    threshold = {"ssim": SSIM, "mse": MSE}[metric]
    (only,) = exposures(pd.concat([attacked, rows("blind", blind, metric)]), [threshold])
    return only


def test_a_client_counts_by_its_best_recovered_sample() -> None:
    attacked = rows("best", [[0.1, 0.9], [0.2, 0.3], [0.6, 0.1], [0.49, 0.0], [0.5, 0.2]])
    found = exposure(attacked, [[0.1, 0.2], [0.1, 0.1], [0.2, 0.1], [0.1, 0.1], [0.1, 0.1]], "ssim")
    assert (found.above, found.clients, found.verdict) == (3, 5, "exposed")
    expected = binomtest(3, 5).proportion_ci(0.95, method="exact")
    assert (found.share.low, found.share.high) == pytest.approx((expected.low, expected.high))
    ranked = [(loss.client, loss.sample) for loss in found.losses]
    assert ranked == [(0, 1), (2, 0), (4, 0), (3, 0), (1, 1)]
    assert found.attacked.value == pytest.approx((0.9 + 0.3 + 0.6 + 0.49 + 0.5) / 5)
    assert found.gain.value == pytest.approx(found.attacked.value - found.blind.value)


def test_a_sample_counts_if_it_is_recovered_better_than_its_own_guess() -> None:
    attacked = rows("best", [[0.9, 0.6], [0.9, 0.4], [0.9, 0.9]])
    found = exposure(attacked, [[0.1, 0.7], [0.1, 0.1], [0.1, 0.1]], "ssim")
    assert found.samples.value == pytest.approx((0.5 + 0.5 + 1) / 3)


def test_what_a_guess_finds_as_well_is_no_leakage() -> None:
    found = exposure(rows("best", [[0.7]] * 5), [[0.8]] * 5, "ssim")
    assert (found.above, found.verdict) == (0, "not found")
    assert found.gain.value == pytest.approx(-0.1)


def test_smaller_errors_are_worse_for_the_client() -> None:
    attacked = rows("best", [[0.5], [0.001], [0.02], [0.3], [0.4]], "mse")
    found = exposure(attacked, [[0.1]] * 5, "mse")
    assert (found.above, found.verdict) == (1, "partly exposed")
    assert found.losses[0].client == 1
    assert found.gain.value == pytest.approx(0.1 - attacked["value"].mean())


def test_the_interval_of_an_error_does_not_go_below_0() -> None:
    attacked = rows("best", [[1e-9], [0.05], [1e-9], [1e-9], [1e-9]], "mse")
    found = exposure(attacked, [[0.1]] * 5, "mse")
    assert found.attacked.low == 0 < found.attacked.value < found.attacked.high


def test_samples_that_were_not_found_count_as_the_guess() -> None:
    found = exposure(rows("mkor", [[float("nan")]] * 3), [[0.6]] * 3, "ssim")
    assert found.above == 0
    assert not any(loss.found for loss in found.losses)


def test_the_strongest_attack_is_first_and_a_metric_without_values_gives_nothing() -> None:
    values = {"dlg": [[0.2]] * 3, "cpl": [[0.9]] * 3, "blind": [[0.1]] * 3}
    table = pd.concat(rows(attack, samples) for attack, samples in values.items())
    assert [each.attack for each in exposures(table, [SSIM, MSE])] == ["cpl", "dlg"]


def test_the_interval_of_a_share_is_within_0_and_1() -> None:
    share = mean_in(rows("best", [[1, 0.5], [1, 1], [0.5, 1], [1, 1], [1, 1]], LABELS), LABELS)
    assert share.value == pytest.approx(0.9)
    assert 0 < share.low < 0.9 < share.high <= 1


def test_clients_of_two_cells_are_not_mixed() -> None:
    other = {"client": "fedsgd+victims=2"}
    table = pd.concat(
        [
            rows("best", [[0.9], [0.1]]),
            rows("blind", [[0.2], [0.2]]),
            rows("best", [[0.1], [0.1]]).assign(**other),
            rows("blind", [[0.2], [0.2]]).assign(**other),
        ]
    )
    found = exposures(table, [SSIM])
    assert [(each.cell.split("/")[4], each.above, each.clients) for each in found] == [
        ("fedsgd+victims=5", 1, 2),
        ("fedsgd+victims=2", 0, 2),
    ]
