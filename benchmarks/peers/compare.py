"""gleak's attacks and public tools on the same updates, in one table.

    python benchmarks/peers/compare.py --peers DIR --data DIR --output docs/results/peers

``DIR`` of ``--peers`` contains the public repositories, one folder each, as `tools.TOOLS` names
them; one that is missing or fails has a row that says so. The settings are in ``settings.yaml``.
What a setting searches is chosen on training images first, by the same number of trials for each
tool that searches. Finished runs are kept in ``--work`` and not repeated. Writes ``scores.csv.gz``,
one row for each victim and metric, ``trials.csv``, ``costs.csv``, ``differences.csv``, paired over
victims, and ``table.md``. Rows of settings that are not run (``--only``) are kept as they are in
``--output``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pandas as pd
import yaml
from tools import TOOLS

from gleak.core.registry import parse
from gleak.figures.intervals import mean_of, paired_difference
from gleak.metrics.score import score
from gleak.studies.cell import LEVELS, Cell

HERE = Path(__file__).parent
METRICS = ("psnr", "ssim", "lpips", "success_content")
COMPARED = 2
"""Leading metrics of a setting of which tools are compared; both are better if higher."""
EITHER_SIGN = "psnr_oracle_sign"
"""Has no value for attacks that know the signs of their samples: their PSNR takes its place."""
Values = Mapping[str, float]


@dataclass(frozen=True)
class Setting:
    """A cell on which tools are compared.

    Args:
        name: in the table.
        cell: path of its levels up to the defence.
        iterations: budget of the public tools.
        ours: specs of gleak's attacks, with ``{NAME}`` for a value that is searched.
        peers: names of `tools.TOOLS`.
        metrics: columns of the table; the first one chooses among trials.
        trials: values that are tried for each tool that searches; none if nothing is searched.
        clients: with training images, for the trials.
        seeds: runs with other networks, crafted parameters and batches, whose victims are joined.
        seed: of a run.
    """

    name: str
    cell: str
    iterations: int
    ours: list[str]
    peers: list[str]
    metrics: tuple[str, ...] = METRICS
    trials: tuple[Values, ...] = ()
    clients: int = 2
    seeds: int = 1
    seed: int = 0

    @property
    def runs(self) -> list[Setting]:
        """The same for each seed."""
        return [replace(self, seed=seed) for seed in range(self.seeds)]

    @property
    def results(self) -> Path:
        """Folder of results, relative to that of the comparison."""
        return Path(f"seed={self.seed}") if self.seed else Path()

    @property
    def levels(self) -> dict[str, str]:
        """Spec of each level, as in a table of scores."""
        return dict(zip(LEVELS, self.cell.split("/"), strict=False))

    @property
    def folder(self) -> Path:
        """Folder of its ``update.h5``, relative to that of the comparison."""
        return self.results / "artifacts" / self.cell

    @property
    def parameters(self) -> Path:
        """Broadcast parameters, relative to the folder of the comparison."""
        crafted = self.levels["crafting"] != "honest"
        levels, file = (4, "parameters.h5") if crafted else (3, "model.h5")
        return self.results.joinpath("artifacts", *self.cell.split("/")[:levels], file)

    @property
    def training(self) -> Setting:
        """The same with training images and another initialisation, for the trials."""
        specs = Cell.parse(self.levels).specs
        changed = {"training": {"repetition": 1}}
        changed["client"] = {"split": "train", "victims": self.clients}
        updated = {level: specs[level].model_copy(update=changed[level]) for level in changed}
        cell = str(Cell({**specs, **updated}))
        return replace(self, name=f"{self.name}, trials", cell=cell, metrics=self.metrics[:1])

    def trials_of(self, tool: str) -> Sequence[Values]:
        """Return the values that are tried for a tool; one without values if it has none."""
        return self.trials if self.trials and ("{" in tool or tool in self.peers) else [{}]


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

    def run(self, setting: Setting) -> Iterator[dict[str, pd.DataFrame]]:
        """Yield the tables ``scores``, ``costs`` and ``trials`` of every tool in a setting."""
        for one in setting.runs:
            self._simulate(one)
        if setting.trials:
            self._simulate(setting.training)
        for tool in ("blind", *setting.ours, *setting.peers):
            trials = self._search(setting, tool)
            values = next(row["values"] for row in trials if row["chosen"])
            cost = mean_cost([self._run(one, tool, [values])[0] for one in setting.runs])
            names = {"setting": setting.name, "tool": name_of(tool)}
            tables = [self._scores(one, tool, values) for one in setting.runs]
            yield {
                "scores": joined_victims(tables),
                "costs": pd.DataFrame([{**names, **cost}]),
                "trials": pd.DataFrame(
                    {**names, **row["values"], "mean": row["mean"], "chosen": row["chosen"]}
                    for row in trials
                    if row["values"]
                ),
            }

    def _simulate(self, setting: Setting) -> None:
        """Make the update, the truth and the labels, with the workflow."""
        files = ["update.h5", "private.h5", "granted/labels.h5", "granted/mean_input.h5"]
        targets = [str(self.work / setting.folder / file) for file in files]
        results = f"results_dir={self.work / setting.results}"
        config = [f"data_dir={self.data}", results, "device=cpu", f"seed={setting.seed}"]
        command = ["snakemake", "--cores", "1", *targets, "--quiet", "all", "--config", *config]
        subprocess.run([sys.executable, "-m", *command], check=True)

    def _search(self, setting: Setting, tool: str) -> list[dict]:
        """Return the trials of a tool with their mean on training images, one of them chosen."""
        values = setting.trials_of(tool)
        if len(values) == 1:
            return [{"values": values[0], "mean": None, "chosen": True}]
        self._run(setting.training, tool, values)
        means = [self._mean(setting.training, tool, one) for one in values]
        best = pd.Series(means).fillna(float("-inf")).idxmax()
        return [
            {"values": one, "mean": mean, "chosen": place == best}
            for place, (one, mean) in enumerate(zip(values, means, strict=True))
        ]

    def _mean(self, setting: Setting, tool: str, values: Values) -> float:
        scores = self._scores(setting, tool, values)
        return round(scores["value"].mean(), 3) if len(scores) else float("nan")

    def _folder(self, setting: Setting, tool: str, values: Values) -> Path:
        fields = [f"{name}={value}" for name, value in values.items() if "{" not in tool]
        folder = self.work / setting.results / "peers" / setting.name
        return folder / "+".join([tool.format(**values), *fields])

    def _run(
        self, setting: Setting, tool: str, values: Sequence[Values]
    ) -> list[dict[str, object]]:
        """Run a tool in a process of its own, and return its costs, or the reason of a failure."""
        folders = [self._folder(setting, tool, one) for one in values]
        open_runs = [
            ["--run", str(folder), json.dumps(one)]
            for folder, one in zip(folders, values, strict=True)
            if not (folder / "cost.json").exists()
        ]
        failed: dict[str, object] = {}
        if open_runs:
            paths = {
                "--peers": self.peers,
                "--cell": self.work / setting.folder,
                "--parameters": self.work / setting.parameters,
                "--iterations": setting.iterations,
                "--seed": setting.seed,
            }
            options = [str(part) for pair in paths.items() for part in pair]
            script = [sys.executable, str(HERE / "run_tool.py"), tool, *options]
            done = subprocess.run(
                [*script, *chain.from_iterable(open_runs)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                lines = done.stderr.strip().splitlines()
                failed = {"failed": lines[-1] if lines else f"ended with {done.returncode}"}
        files = [folder / "cost.json" for folder in folders]
        return [json.loads(file.read_text()) if file.exists() else failed for file in files]

    def _scores(self, setting: Setting, tool: str, values: Values) -> pd.DataFrame:
        """Return the scores of a tool; no rows if it failed."""
        folder = self._folder(setting, tool, values)
        found = folder / "reconstruction.h5"
        if not found.exists():
            return pd.DataFrame()
        columns = {**setting.levels, "attack": tool, "grants": "labels"}
        metrics = [parse("metric", name) for name in setting.metrics]
        truth = self.work / setting.folder / "private.h5"
        table = score(truth, folder / "scores.csv", columns, found, metrics)
        return table.assign(setting=setting.name, tool=name_of(tool))


def joined_victims(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join the scores of runs, with their victims numbered in a row."""
    first, parts = 0, []
    for table in tables:
        if len(table):
            parts.append(table.assign(victim=table["victim"] + first))
            first += 1 + int(table["victim"].max())
    return pd.concat(parts) if parts else pd.DataFrame()


def mean_cost(costs: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return the mean of the runs' costs, or the reason of a failure."""
    failed = [cost for cost in costs if "failed" in cost]
    if failed or len(costs) == 1:
        return dict(failed[0] if failed else costs[0])
    table = pd.DataFrame(costs)
    return {"cpu_seconds": round(table["cpu_seconds"].mean(), 3), "memory": table["memory"].max()}


def name_of(tool: str) -> str:
    """Return the name of a tool in tables: that of an attack without its fields."""
    return tool.partition("+")[0]


def main() -> None:
    options = parse_options()
    every = [
        Setting(name, **{**fields, "metrics": tuple(fields.get("metrics", METRICS))})
        for name, fields in yaml.safe_load((HERE / "settings.yaml").read_text()).items()
    ]
    settings = [one for one in every if any(part in one.name for part in options.only)]
    comparison = Comparison(options.peers, options.data, options.work)
    results = [result for setting in settings for result in comparison.run(setting)]
    found = {
        name: pd.concat([result[name] for result in results]).reset_index(drop=True)
        for name in ("scores", "costs", "trials")
    }
    options.output.mkdir(parents=True, exist_ok=True)
    kept = ["setting", "tool", "victim", "sample", "metric", "value", "status"]
    order = [setting.name for setting in every]
    joined = updated(options.output / "scores.csv.gz", found["scores"][kept], order)
    spent = updated(options.output / "costs.csv", found["costs"], order)
    if len(found["trials"]):
        updated(options.output / "trials.csv", found["trials"], order)
    compared = differences_of(joined, every)
    compared.round(4).to_csv(options.output / "differences.csv", index=False)
    (options.output / "table.md").write_text(table_of(joined, spent, compared))


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


def differences_of(scores: pd.DataFrame, settings: Sequence[Setting]) -> pd.DataFrame:
    """Return each attack of gleak minus each public tool, paired over victims, with 95% intervals.

    Metrics are the leading ones of a setting. A verdict is *ahead* or *behind* if the interval
    excludes zero.
    """
    means = scores.groupby(["setting", "metric", "tool", "victim"])["value"].mean()
    rows = []
    for setting in settings:
        for metric in setting.metrics[:COMPARED]:
            if (setting.name, metric) not in means.index:
                continue
            of = means[setting.name, metric].unstack("tool")
            if metric == EITHER_SIGN:
                of = of.combine_first(means[setting.name, "psnr"].unstack("tool"))
            binary = parse("metric", metric).binary
            for ours in [name for name in map(name_of, setting.ours) if name in of]:
                for peer in [name for name in setting.peers if name in of]:
                    pair = of[[ours, peer]].dropna()
                    change = paired_difference(*pair.to_numpy().T, binary)
                    low, high = change.interval()
                    verdict = "ahead" if low > 0 else "behind" if high < 0 else "none shown"
                    names = (setting.name, metric, ours, peer, change.n)
                    rows.append((*names, change.value, low, high, verdict))
    columns = ["setting", "metric", "ours", "peer", "n", "difference", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def table_of(scores: pd.DataFrame, costs: pd.DataFrame, differences: pd.DataFrame) -> str:
    """Return the tables: metrics with 95% intervals over victims and costs; paired differences."""
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
    tables = [table, differences.round(3)]
    texts = [each.to_markdown(index=False, disable_numparse=True) for each in tables]
    return "\n\n".join(texts) + "\n"


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
