from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import pytest

from gleak.core.errors import SpecError
from gleak.studies.cell import LEVELS
from gleak.studies.stages import STAGES
from gleak.studies.study import load_study
from gleak.studies.targets import check_target

FOLDER = Path(__file__).parents[2] / "studies"
STUDIES = {file.stem: file for file in FOLDER.glob("*.yaml")}
RULES = ("all", "searches")
CELL = "digits/lenet/untrained/honest/fedsgd/none/cpl+restarts=2+start=dark"
STUDY = load_study(STUDIES["cpl"])
SCORES = f"results/artifacts/{CELL}/scores.csv"


def check(target: str, results: str = "results") -> None:
    check_target(target, Path(results), STUDIES, RULES)


def meant(target: str, results: str = "results") -> str:
    """The whole target that the error gives."""
    with pytest.raises(SpecError) as error:
        check(target, results)
    assert str(error.value).startswith(f"{target}: ")
    found = re.search("write it as ([^ ]+)$", str(error.value))
    assert found, error.value
    return found[1]


def pattern_of_each_stage() -> list[str]:
    values = {**dict(zip(LEVELS, CELL.split("/"), strict=True)), "shard": 2, "shards": 10}
    values["number"] = 1000
    values.update(knowledge="codec+size=64", study="cpl", scale="quick")
    values.update(grid=next(iter(STUDY.grids)), figure=next(iter(STUDY.figures)))
    files = [f"results/{stage.folder}/{file}" for stage in STAGES.values() for file in stage.files]
    return [file.format(**values) for file in files if "{search}" not in file]


@pytest.mark.parametrize("target", [*RULES, *pattern_of_each_stage()])
def test_files_of_every_stage_are_accepted(target: str) -> None:
    check(target)


def test_files_that_exist_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "report.html").touch()
    check(str(tmp_path / "report.html"))


@pytest.mark.parametrize(
    "target",
    [
        CELL + "/scores.csv",
        f"artifacts/{CELL}/scores.csv",
        f"results/artifacts/{CELL}/score.csv",
        SCORES.replace("restarts=2+start=dark", "start=dark+restarts=2"),
        SCORES.replace("lenet", "lenet+width=12"),
        f"{Path.cwd()}/{SCORES}",
    ],
)
def test_the_whole_target_that_was_meant_is_given(target: str) -> None:
    assert meant(target) == SCORES


def test_any_order_of_the_levels_gives_the_right_one() -> None:
    for order in list(permutations(CELL.split("/")))[1::500]:
        assert meant(f"results/artifacts/{'/'.join(order)}/scores.csv") == SCORES


def test_a_spec_at_another_level_is_named_with_its_kind() -> None:
    wrong = SCORES.replace("honest/fedsgd/none", "none/fedsgd/honest")
    with pytest.raises(
        SpecError, match=r"'none' is a defense, not a crafting; .*<dataset>/<model>"
    ):
        check(wrong)


@pytest.mark.parametrize(
    ("target", "right"),
    [
        ("results/studies/cpll/quick/table1.html", "results/studies/cpl/quick/table1.html"),
        ("studies/cpl/quik/table1.csv", "results/studies/cpl/quick/table1.csv"),
        ("results/studies/cpl/quick/expectation.csv", "results/studies/cpl/quick/expectations.csv"),
        (
            "results/knowledge/digits+size=16/codec+size=64/knowledge.h",
            "results/knowledge/digits/codec+size=64/knowledge.h5",
        ),
        ("digits/dataset.h", "results/artifacts/digits/dataset.h5"),
        (
            f"results/artifacts/{CELL.rpartition('/')[0]}/granted/label.h5",
            f"results/artifacts/{CELL.rpartition('/')[0]}/granted/labels.h5",
        ),
    ],
)
def test_files_of_other_stages(target: str, right: str) -> None:
    assert meant(target) == right


def test_results_elsewhere(tmp_path: Path) -> None:
    check(f"{tmp_path}/artifacts/{CELL}/scores.csv", str(tmp_path))
    assert meant(SCORES.removeprefix("results/"), str(tmp_path)).startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("serches", "did you mean 'searches'"),
        ("results/artifcts/digits/dataset.h5", "neither a rule nor a file in results/"),
        (SCORES.replace("lenet", "lenett"), "unknown model 'lenett'; did you mean 'lenet'"),
        (SCORES.replace("/honest", ""), "unknown crafting 'fedsgd'; 'fedsgd' is a client"),
        (SCORES.replace("fedsgd", "fedsgd+batch=2"), "unknown field 'batch'"),
        (SCORES.replace("/digits", "/adult"), "choose another dataset or model"),
        (SCORES.replace(f"{CELL.rpartition('/')[2]}/", ""), "ends with training or crafting or"),
        (SCORES.replace("scores.csv", "picture.png"), "reconstruction.h5, provenance.json"),
        ("results/artifacts/dataset.h5", "has 0 levels"),
        (SCORES.replace("/scores", "/dlg/scores"), "has 8 levels"),
        ("results/studies/cpl", "files of a study are"),
        ("results/studies/abcdef/quick/table1.svg", "unknown study 'abcdef'"),
        ("results/studies/cpl/quick/zzz", "unknown file 'zzz'"),
    ],
)
def test_errors_name_what_is_wrong(target: str, fault: str) -> None:
    with pytest.raises(Exception, match=re.escape(fault)) as error:
        check(target)
    assert target in str(error.value)
    assert "\n" not in str(error.value)
