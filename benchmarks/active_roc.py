"""How well each audit tells crafted from honest networks: ROC curves, and a table.

    python benchmarks/active_roc.py honest.csv crafted.csv --output docs/results/active/detection

The tables are those of `active_audits`. Writes ``roc.png`` with a panel for each crafting at its
default, and one for the variant that passes most audits, against the honest networks of the
held-out half, and ``audits.md``, attack x audit.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from active_audits import FALSE_ALARMS, NAMES
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from gleak.figures.canvas.style import NEUTRAL, PAGE, PANEL, colours, new_figure, save, theme

ALL = "all audits"
"""The largest value in limits, at which `gleak audit` alarms if it exceeds 1."""
HIDDEN = ("loki+noise=1e-4", "+bins=24")
"""Crafting and end of the model's spec of the variant that passes most audits."""
COLUMNS, PALETTE = 4, 10
Values = NDArray[np.float64]


def values_of(table: pd.DataFrame, audit: str) -> Values:
    """Return an audit's values in limits, or the largest of all; 0 where it says nothing."""
    values = table[NAMES].fillna(0).replace(np.inf, 1e9)
    return (values.max(axis=1) if audit == ALL else values[audit]).to_numpy()


def above(honest: Values, crafted: Values) -> int:
    """Count crafted networks above the threshold that at most 1% of the honest ones exceed."""
    threshold = np.sort(honest)[-1 - int(FALSE_ALARMS * len(honest))]
    return int((crafted > threshold).sum())


def table_of(honest: pd.DataFrame, crafted: pd.DataFrame) -> str:
    """Return the table attack x audit, of true alarms at 1% false ones."""
    rows = {}
    for (crafting, model), group in crafted.groupby(["crafting", "model"], sort=False):
        counts = {
            name.removeprefix("audit_"): above(values_of(honest, name), values_of(group, name))
            for name in [*NAMES, ALL]
        }
        rows[f"`{crafting}` on `{model}` ({len(group)})"] = counts
    counted = pd.DataFrame(rows).T
    shown = counted.loc[:, counted.any()].replace(0, "")
    return shown.rename_axis("crafting (networks)").to_markdown() + "\n"


def draw(honest: pd.DataFrame, groups: Mapping[str, pd.DataFrame], stem: Path) -> None:
    """Draw true against false alarms, for each audit that tells some networks.

    Audits that tell all networks of a panel are named in it, without a curve.
    """
    shown = [ALL, "audit_dominance", "audit_isolation", "audit_spectrum", "audit_size"]
    shades = dict(zip(shown, ["black", *colours(PALETTE)], strict=False))
    with theme():
        lines = -(-len(groups) // COLUMNS)
        figure = new_figure(PAGE, PANEL[1] * lines * 0.85)
        panels = list(figure.subplots(lines, COLUMNS, sharex=True, sharey=True, squeeze=False).flat)
        for axes, (title, rows) in zip(panels, groups.items(), strict=False):
            _draw_panel(axes, honest, rows, shades)
            axes.axvline(FALSE_ALARMS, color=NEUTRAL, lw=0.5, ls=":")
            axes.set(title=f"{title} ({len(rows)})", xscale="log", ylim=(-0.02, 1.05))
            axes.set(xlabel="false alarms", ylabel="true alarms")
        for axes in panels[len(groups) :]:
            axes.set_axis_off()
        handles = [
            Line2D([], [], color=shade, label=name.removeprefix("audit_"))
            for name, shade in shades.items()
        ]
        panels[-1].legend(handles=handles, loc="center")
        figure.tight_layout()
        save(figure, stem)


def _draw_panel(
    axes: Axes, honest: pd.DataFrame, rows: pd.DataFrame, shades: Mapping[str, Any]
) -> None:
    """Draw the curves of one crafting, and name the audits that tell all its networks."""
    perfect = []
    for name in [*NAMES, ALL]:
        others, values = values_of(honest, name), values_of(rows, name)
        if not above(others, values) and name != ALL:
            continue
        if values.min() > others.max() and name != ALL:
            perfect.append(name.removeprefix("audit_"))
            continue
        truth = np.repeat([0, 1], [len(honest), len(rows)])
        false, true, _ = roc_curve(truth, np.concatenate([others, values]), drop_intermediate=False)
        false = np.maximum(false, 0.5 / len(honest))
        axes.step(false, true, where="post", color=shades[name])
    text = "\n".join(["all told by", *perfect]) if perfect else "no audit tells all"
    axes.text(0.97, 0.04, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", type=Path, nargs="+", help="of `active_audits`, CSV")
    parser.add_argument("--output", type=Path, required=True, help="folder")
    options = parser.parse_args()
    tables = [pd.read_csv(file) for file in options.tables]
    honest = pd.concat([table for table in tables if "partition" in table])
    crafted = pd.concat([table for table in tables if "crafting" in table])
    honest = honest[honest["partition"] == "held_out"]
    defaults = crafted[crafted["spec"] == crafted["crafting"]]
    groups = {str(name): rows for name, rows in defaults.groupby("crafting", sort=False)}
    spec, end = HIDDEN
    hidden = crafted[(crafted["spec"] == spec) & crafted["model"].str.endswith(end)]
    if len(hidden):
        groups["loki, hidden"] = hidden
    draw(honest, groups, options.output / "roc")
    (options.output / "audits.md").write_text(table_of(honest, defaults))


if __name__ == "__main__":
    main()
