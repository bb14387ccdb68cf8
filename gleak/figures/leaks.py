"""Verdicts on defences, which hide and which leak, by gates that are checked from scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from gleak.core.spec import Spec
from gleak.figures.evidence import CellValues, estimate, setting_of
from gleak.figures.intervals import CONFIDENCE, FEWEST, Estimate, Interval
from gleak.studies.axis_labels import BLIND, AxisLabels, is_control, read_metric
from gleak.studies.cell import Cell
from gleak.studies.claims import ClaimedRange
from gleak.studies.gates import DEFENSE, Gates

Leak = Literal["leaks", "hides", "cannot tell", "under-attacked"]
UNDER_ATTACKED: Leak = "under-attacked"
NO_CONTROL = "no weaker strength is known to leak"
"""Reason why a defence under which nothing is above blind is not said to hide."""
DIFFERENCE = ClaimedRange(0, 1)
NAMED = 3  # cells that leak more are named up to this number


@dataclass(frozen=True)
class Finding:
    """Verdict on one cell.

    Args:
        leak: *leaks*: the attack is above blind by more than the margin. *hides*: it is not, and it
            is at a weaker strength of the same defence. *under-attacked*: the same victims leak
            more under a stronger defence, so the attack on this cell, or on the cell without a
            defence, is too weak for a verdict.
        reason: of the verdict, for tables.
        above: the attack minus blind, positive if the attack is better.
        interval: 95%, not below zero: an attacker whose attack is worse than blind guesses blind.
    """

    leak: Leak
    reason: str
    above: Estimate
    interval: Interval


@dataclass(frozen=True)
class Setting:
    """Cells that differ in the defence alone.

    Args:
        cells: defence -> cell.
        values: defence -> values of the attack, larger ones being better for it.
        blind: defence -> values of blind.
    """

    cells: Mapping[Spec, Cell]
    values: Mapping[Spec, CellValues]
    blind: Mapping[Spec, CellValues]

    def above(self, defense: Spec) -> Estimate:
        """Estimate by how much the attack is above blind."""
        difference = estimate(DIFFERENCE, [self.values[defense], self.blind[defense]])
        assert difference is not None  # both have the same victims
        return difference

    def leaked(self, defense: Spec) -> CellValues:
        """Return the attack's values, or those of blind if these are better (`CellValues.center`).

        Whether an attack is worth more than a guess in a setting as a whole, an attacker finds out
        with samples of his own. The better one of both for each victim takes the true samples.
        """
        ours, blind = self.values[defense], self.blind[defense]
        return ours if ours.center >= blind.center else blind


def find_leaks(
    gates: Gates, metric: str, values: Mapping[Cell, CellValues], names: AxisLabels
) -> dict[Cell, Finding]:
    """Check the gates of a grid; a finding for each attacked cell that has a control.

    Args:
        gates: of the grid.
        metric: one that has a margin.
        values: of the metric in all cells of the grid, with the control.
        names: labels of the grid.
    """
    margin = gates.margin(metric)
    assert margin is not None
    findings: dict[Cell, Finding] = {}
    for setting in _settings(values, 1 if read_metric(metric).better == "higher" else -1):
        findings |= _judge_setting(gates, margin, setting, names)
    return findings


def _settings(values: Mapping[Cell, CellValues], sign: int) -> list[Setting]:
    """Group the attacked cells that have a control; values are such that larger ones leak more."""

    def oriented(one: CellValues) -> CellValues:
        return replace(one, by_batch=sign * one.by_batch, binary=one.binary and sign == 1)

    blind = {
        setting_of(c): oriented(v) for c, v in values.items() if c.specs["attack"].name == BLIND
    }
    groups: dict[tuple[Spec, ...], list[Cell]] = defaultdict(list)
    for cell in values:
        if not is_control(cell) and setting_of(cell) in blind:
            groups[*(spec for level, spec in cell.specs.items() if level != DEFENSE)].append(cell)
    return [
        Setting(
            {cell.defense: cell for cell in cells},
            {cell.defense: oriented(values[cell]) for cell in cells},
            {cell.defense: blind[setting_of(cell)] for cell in cells},
        )
        for cells in groups.values()
    ]


def _judge_setting(
    gates: Gates, margin: float, setting: Setting, names: AxisLabels
) -> dict[Cell, Finding]:
    reference = gates.without_defense(names)
    families = [[d for d in each if d in setting.cells] for each in gates.families(names)]
    outdone = _outdone(margin, setting, reference, families)
    above = {defense: setting.above(defense) for defense in setting.cells}
    intervals = {defense: _not_below_zero(each.interval()) for defense, each in above.items()}
    leaking = {d for d, end in intervals.items() if end.low > margin and above[d].n >= FEWEST}

    def reason(defense: Spec) -> tuple[Leak, str]:
        stronger = ", ".join(names.label(DEFENSE, d) for d in outdone.get(defense, [])[:NAMED])
        told = f"leaks less than under {stronger}" if stronger else ""
        if defense in leaking and (defense != reference or not told):
            return "leaks", told
        if told:
            return UNDER_ATTACKED, told
        if above[defense].n < FEWEST:
            return "cannot tell", f"fewer than {FEWEST} victims"
        if intervals[defense].high > margin:
            return "cannot tell", "the interval is on both sides of the margin"
        if reference in outdone:
            return UNDER_ATTACKED, "without a defence less leaks than under one"
        weaker = {d for each in families if defense in each for d in each[: each.index(defense)]}
        shown = next((names.label(DEFENSE, d) for d in setting.cells if d in weaker & leaking), "")
        if not shown:
            return "cannot tell", NO_CONTROL
        return "hides", f"{shown} leaks"

    return {
        cell: Finding(*reason(defense), above[defense], intervals[defense])
        for defense, cell in setting.cells.items()
    }


def _outdone(
    margin: float, setting: Setting, reference: Spec | None, families: list[list[Spec]]
) -> dict[Spec, list[Spec]]:
    """Return the defences, or none, under which less leaks than under stronger ones, with these.

    By more than the margin, at a confidence of 1 - 0.05 / k for k pairs (Bonferroni): one of many
    pairs would be found by chance. Only pairs with the same batches are compared.
    """
    others = [defense for defense in setting.cells if defense != reference]
    pairs = [(reference, defense) for defense in others] if reference in setting.cells else []
    pairs += [pair for strengths in families for pair in combinations(strengths, 2)]
    found: dict[Spec, list[Spec]] = defaultdict(list)
    for weaker, stronger in pairs:
        assert weaker is not None
        more = estimate(DIFFERENCE, [setting.leaked(stronger), setting.leaked(weaker)])
        level = 1 - (1 - CONFIDENCE) / len(pairs)
        if more is not None and more.n >= FEWEST and more.interval(level).low > margin:
            found[weaker].append(stronger)
    return dict(found)


def _not_below_zero(interval: Interval) -> Interval:
    return Interval(max(interval.low, 0.0), max(interval.high, 0.0))
