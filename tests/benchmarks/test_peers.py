"""The comparison with public tools: its settings, and the record of its page."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs/results/peers"


@pytest.fixture(scope="module")
def compare(import_script):
    return import_script("peers/compare.py")


@pytest.fixture(scope="module")
def settings(compare):
    fields = yaml.safe_load((ROOT / "benchmarks/peers/settings.yaml").read_text())
    return [
        compare.Setting(name, **{"metrics": compare.METRICS, **each})
        for name, each in fields.items()
    ]


def test_trials_are_on_training_images_of_another_network(settings):
    for setting in settings:
        training = setting.training
        assert "split=train" in training.cell and "repetition=1" in training.cell
        assert not setting.trials or "split=train" not in setting.cell


def test_every_tool_that_searches_has_the_same_trials(settings):
    for setting in settings:
        searched = [
            tool for tool in (*setting.ours, *setting.peers) if "{" in tool or tool in setting.peers
        ]
        for tool in searched:
            assert setting.trials_of(tool) == (setting.trials or [{}])
            for values in setting.trials_of(tool):
                assert "{" not in tool.format(**values)


def test_victims_of_several_seeds_are_numbered_in_a_row_and_costs_averaged(compare, settings):
    several = next(setting for setting in settings if setting.seeds > 1)
    folders = [run.parameters for run in several.runs]
    assert len(set(folders)) == several.seeds
    runs = [pd.DataFrame({"victim": [0, 0, 1], "value": [1.0, 2.0, 3.0]}), pd.DataFrame()]
    joined = compare.joined_victims([*runs, runs[0]])
    assert joined["victim"].tolist() == [0, 0, 1, 2, 2, 3]
    costs = [{"cpu_seconds": 1.0, "memory": 5}, {"cpu_seconds": 2.0, "memory": 4}]
    assert compare.mean_cost(costs) == {"cpu_seconds": 1.5, "memory": 5}
    assert compare.mean_cost([*costs, {"failed": "no such file"}]) == {"failed": "no such file"}


def test_differences_are_paired_over_victims(compare, settings):
    first = settings[0]
    victims = range(8)
    means = {"best": [20.0 + v for v in victims], first.peers[0]: [19.0 + v for v in victims]}
    rows = [
        {
            "setting": first.name,
            "tool": tool,
            "victim": v,
            "sample": 0,
            "metric": "psnr",
            "value": x,
        }
        for tool, values in means.items()
        for v, x in enumerate(values)
    ]
    found = compare.differences_of(pd.DataFrame(rows), [first])
    (row,) = found.to_dict("records")
    assert (row["difference"], row["low"], row["high"], row["n"]) == (1, 1, 1, 8)
    assert row["verdict"] == "ahead"


def test_recorded_rows_have_eight_victims_and_the_recorded_differences(compare, settings):
    scores = pd.read_csv(RECORD / "scores.csv.gz")
    victims = scores.groupby(["setting", "tool"])["victim"].nunique()
    assert victims.min() >= 8
    recorded = pd.read_csv(RECORD / "differences.csv")
    computed = compare.differences_of(scores, settings).round(4)
    pd.testing.assert_frame_equal(recorded, computed, check_dtype=False, atol=1e-3)
