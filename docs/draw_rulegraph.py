"""Draws the workflow's rule graph from the workflow itself: `make graph`."""

import re
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
mpl.rcParams["svg.hashsalt"] = "gleak"

from matplotlib import pyplot as plt  # noqa: E402

COLOURS = {
    "attack": "#c8553d",
    **dict.fromkeys(["score", "score_truth", "score_model", "score_parameters"], "#588157"),
}
PLAIN = "#33658a"


def rule_graph() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Rules by node number, and the edges between them, as Snakemake prints them."""
    command = [sys.executable, "-m", "snakemake", "--rulegraph", "--forceall"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = dict(re.findall(r'(\d+)\[label = "(\w+)"', text))
    edges = [(names[a], names[b]) for a, b in re.findall(r"(\d+) -> (\d+)", text)]
    return names, sorted(edges)


def depth(rule: str, edges: list[tuple[str, str]]) -> int:
    """Length of the longest way from a source to a rule."""
    return max((1 + depth(before, edges) for before, after in edges if after == rule), default=0)


def draw(output: Path) -> None:
    """Rules from left to right in the order of the data."""
    names, edges = rule_graph()
    columns: dict[int, list[str]] = {}
    for rule in sorted(names.values()):
        columns.setdefault(depth(rule, edges), []).append(rule)
    places = {
        rule: (1.9 * column, (len(rules) - 1) / 2 - row)
        for column, rules in columns.items()
        for row, rule in enumerate(rules)
    }
    figure, axes = plt.subplots(figsize=(1.9 * len(columns), 2.6))
    for before, after in edges:
        arrow = {"arrowstyle": "-|>", "color": "#888888", "shrinkA": 34, "shrinkB": 36, "lw": 1}
        axes.annotate("", xy=places[after], xytext=places[before], arrowprops=arrow)
    for rule, (x, y) in places.items():
        box = {"boxstyle": "round,pad=0.45", "fc": COLOURS.get(rule, PLAIN), "ec": "none"}
        label = rule.replace("_", "\n", 1)
        axes.text(x, y, label, ha="center", va="center", color="white", fontsize=9, bbox=box)
    axes.set_xlim(-0.9, 1.9 * (len(columns) - 1) + 0.9)
    axes.set_ylim(
        *(min(y for _, y in places.values()) - 0.6, 1.0 + max(y for _, y in places.values()) - 0.4)
    )
    axes.axis("off")
    figure.savefig(output, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
