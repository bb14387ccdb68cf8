"""gleak's attacks and public tools on the same updates, in one table.

    python benchmarks/peers/compare.py --peers DIR --data DIR --output docs/results/peers

``DIR`` of ``--peers`` contains the public repositories, one folder each, as `tools.TOOLS` names
them; one that is missing or fails has a row that says so. The settings are in ``settings.yaml``.
Finished runs are kept in ``--work`` and not repeated. Writes ``scores.csv``, one row for each
victim and metric, ``costs.csv``, and ``table.md``. Rows of settings that are not run (``--only``)
are kept as they are in ``--output``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import yaml
from tools import TOOLS

from gleak.core.registry import parse
from gleak.figures.intervals import mean_of
from gleak.metrics.score import score
from gleak.studies.cell import LEVELS

HERE = Path(__file__).parent
METRICS = ("psnr", "ssim", "lpips", "success_content")


@dataclass(frozen=True)
class Setting:
    """A cell on which tools are compared.

    Args:
        name: in the table.
        cell: path of its levels up to the defence.
        iterations: budget of the public tools.
        ours: specs of gleak's attacks.
        peers: names of `tools.TOOLS`.
        metrics: columns of the table; by default `METRICS`.
    """

    name: str
    cell: str
    iterations: int
    ours: list[str]
    peers: list[str]
    metrics: tuple[str, ...] = METRICS

    @property
    def levels(self) -> dict[str, str]:
        """Spec of each level, as in a table of scores."""
        return dict(zip(LEVELS, self.cell.split("/"), strict=False))

    @property
    def folder(self) -> Path:
        """Folder of its ``update.h5``, relative to the results."""
        return Path("artifacts", self.cell)

    @property
    def parameters(self) -> Path:
        """Broadcast parameters, relative to the results."""
        crafted = self.levels["crafting"] != "honest"
        levels, file = (4, "parameters.h5") if crafted else (3, "model.h5")
        return Path("artifacts", *self.cell.split("/")[:levels], file)


@dataclass(frozen=True)
class Comparison:
    """Runs of all tools.

    Args:
        peers: folder with the public repositories.
        data: folder of the datasets.
        work: folder for results.
    """

    peers: Path
    data: Path
    work: Path

    def run(self, setting: Setting) -> Iterator[tuple[pd.DataFrame, dict[str, object]]]:
        """Yield the scores and the costs of every tool in a setting."""
        self._simulate(setting)
        for tool in ("blind", *setting.ours, *setting.peers):
            folder = self.work / "peers" / setting.name / tool
            cost = {"setting": setting.name, "tool": tool, **self._run(setting, tool, folder)}
            yield self._scores(setting, tool, folder), cost

    def _simulate(self, setting: Setting) -> None:
        """Make the update, the truth and the labels, with the workflow."""
        files = ["update.h5", "private.h5", "granted/labels.h5", "granted/mean_input.h5"]
        targets = [str(self.work / setting.folder / file) for file in files]
        config = [f"data_dir={self.data}", f"results_dir={self.work}", "device=cpu"]
        command = ["snakemake", "--cores", "1", *targets, "--quiet", "all", "--config", *config]
        subprocess.run([sys.executable, "-m", *command], check=True)

    def _run(self, setting: Setting, tool: str, folder: Path) -> dict[str, object]:
        """Run a tool in a process of its own, and return its cost, or the reason of a failure."""
        if not (folder / "cost.json").exists():
            paths = {
                "--peers": self.peers,
                "--cell": self.work / setting.folder,
                "--parameters": self.work / setting.parameters,
                "--output": folder,
                "--iterations": setting.iterations,
            }
            options = [str(part) for pair in paths.items() for part in pair]
            script = str(HERE / "run_tool.py")
            done = subprocess.run(
                [sys.executable, script, tool, *options],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                return {"failed": done.stderr.strip().splitlines()[-1]}
        cost: dict[str, object] = json.loads((folder / "cost.json").read_text())
        return cost

    def _scores(self, setting: Setting, tool: str, folder: Path) -> pd.DataFrame:
        """Return the scores of a tool; no rows if it failed."""
        found = folder / "reconstruction.h5"
        if not found.exists():
            return pd.DataFrame()
        columns = {**setting.levels, "attack": tool, "grants": "labels"}
        metrics = [parse("metric", name) for name in setting.metrics]
        truth = self.work / setting.folder / "private.h5"
        table = score(truth, folder / "scores.csv", columns, found, metrics)
        return table.assign(setting=setting.name, tool=tool)


def main() -> None:
    options = parse_options()
    every = [
        Setting(name, **{**fields, "metrics": tuple(fields.get("metrics", METRICS))})
        for name, fields in yaml.safe_load((HERE / "settings.yaml").read_text()).items()
    ]
    settings = [one for one in every if any(part in one.name for part in options.only)]
    comparison = Comparison(options.peers, options.data, options.work)
    results = [result for setting in settings for result in comparison.run(setting)]
    scores, costs = zip(*results, strict=True)
    options.output.mkdir(parents=True, exist_ok=True)
    kept = ["setting", "tool", "victim", "sample", "metric", "value", "status"]
    order = [setting.name for setting in every]
    joined = updated(options.output / "scores.csv.gz", pd.concat(scores)[kept], order)
    spent = updated(options.output / "costs.csv", pd.DataFrame(costs), order)
    (options.output / "table.md").write_text(table_of(joined, spent))


def updated(file: Path, rows: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """Replace the rows of settings in a table, which need not be there yet, and return the table.

    Args:
        file: the table; written.
        rows: all rows of the settings that were run.
        order: names of all settings; others come last.
    """
    types = {"sample": "Int64", "memory": "Int64"}
    old = pd.read_csv(file, dtype=types) if file.exists() else rows
    other = old[~old["setting"].isin(rows["setting"])]
    places = {name: place for place, name in enumerate(order)}
    table = pd.concat([other, rows.astype({name: types[name] for name in types if name in rows})])
    table = table.sort_values(
        "setting", key=lambda names: names.map(places).fillna(len(places)), kind="stable"
    ).reset_index(drop=True)
    table.to_csv(file, index=False)
    return table


def table_of(scores: pd.DataFrame, costs: pd.DataFrame) -> str:
    """Return the table: the mean of every metric with its 95% interval over victims, and costs."""
    means = {
        key: _with_interval(str(key[2]), values)
        for key, values in scores.groupby(["setting", "tool", "metric"])
    }
    table = (
        costs.astype(object)
        .fillna("")
        .rename(columns={"cpu_seconds": "CPU s a victim", "memory": "MB"})
    )
    for place, metric in enumerate(dict.fromkeys(scores["metric"]), start=2):
        pairs = zip(costs["setting"], costs["tool"], strict=True)
        table.insert(place, metric, [means.get((*pair, metric), "–") for pair in pairs])
    return table.to_markdown(index=False, disable_numparse=True) + "\n"


def _with_interval(metric: str, values: pd.DataFrame) -> str:
    victims = values.groupby("victim")["value"].mean().dropna().to_numpy()
    if not len(victims):
        return "–"
    estimate = mean_of(victims, parse("metric", metric).binary)
    low, high = estimate.interval()
    return f"{estimate.value:.3g} [{low:.3g}, {high:.3g}]"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, required=True, help=", ".join(TOOLS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("results"))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument(
        "--only", nargs="+", default=[""], help="settings whose name contains one of these"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
