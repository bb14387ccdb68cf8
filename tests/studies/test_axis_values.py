"""Studies by difference: bases, variants and patches of scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gleak.core.errors import SpecError
from gleak.core.registry import parse
from gleak.studies.axis_values import with_fields
from gleak.studies.cell import LEVELS
from gleak.studies.grid import Grid
from gleak.studies.study import load_study
from tests.studies.test_grid import expanded, proxies

BASE = "mnist/lenet/untrained/honest/fedsgd+victims=16/none"
STUDY: dict[str, Any] = {
    "base": dict(zip(LEVELS, BASE.split("/"), strict=False)),
    "variants": {
        "attack": {
            "CPL": "cpl+alpha=0.5",
            "DLG": "dlg",
            "CPL, no restarts": {"base": "CPL", "restarts": 0},
            "rog": {"name": "rog", "postprocessor": "postprocessor", "label": "ROG"},
        }
    },
}


def grid(scale: str = "paper", fields: Any = None, **study: Any) -> Grid:
    return expanded({"attack": ["CPL", "DLG"], **(fields or {})}, scale, **{**STUDY, **study})


def values(found: Grid, level: str = "attack") -> list[str]:
    return [text for text in found.names.values[level] if text not in ("blind", "truth")]


def test_levels_that_a_grid_leaves_out_are_the_bases() -> None:
    assert values(grid()) == ["cpl+alpha=0.5", "dlg"]
    assert values(grid(), "client") == ["fedsgd+victims=16"]
    assert values(grid(fields={"client": "fedavg"}), "client") == ["fedavg"]
    audited = expanded({"end": "crafting"}, **STUDY)
    assert list(audited.names.values) == ["dataset", "model", "training", "crafting"]


def test_fields_alone_change_the_base_and_lists_give_one_item_each() -> None:
    found = grid(fields={"client": [{"batch_size": 2}, {"batch_size": [4, 8], "labels": "unique"}]})
    assert values(found, "client") == [
        "fedsgd+victims=16+batch_size=2",
        "fedsgd+victims=16+batch_size=4+labels=unique",
        "fedsgd+victims=16+batch_size=8+labels=unique",
    ]
    noise = {"defense": {"name": "gaussian", "std": ["1e-3", 0.01]}}
    assert values(grid(fields=noise), "defense") == ["gaussian+std=1e-3", "gaussian"]


def test_a_variant_is_labelled_at_every_scale_and_named_in_figures() -> None:
    patch = {"attack": {"iterations": 60}}
    found = grid("quick", {"attack": ["CPL", "CPL, no restarts"]}, scales={"quick": patch})
    tuned, bare = values(found)
    assert (tuned, bare) == (
        "cpl+iterations=60+alpha=0.5",
        "cpl+iterations=60+restarts=0+alpha=0.5",
    )
    assert found.names.label("attack", parse("attack", bare)) == "CPL, no restarts"
    assert str(found.names.resolve("attack", "CPL, no restarts")) == bare
    assert str(found.names.resolve("attack", "cpl+restarts=0+alpha=0.5")) == bare
    assert proxies(found)["attack"][bare] == "cpl+restarts=0+alpha=0.5"


def test_patches_of_the_study_and_the_grid_follow_one_another() -> None:
    scales = {"quick": {"client": {"victims": 1}, "attack": {"iterations": 60}}}
    fields = {"quick": {"attack": {"only": ["CPL"], "cpl": {"iterations": 7}}}}
    found = grid("quick", fields, scales=scales)
    assert values(found) == ["cpl+iterations=7+alpha=0.5"]
    assert values(found, "client") == ["fedsgd"] or values(found, "client") == ["fedsgd+victims=1"]
    assert values(grid("small", fields, scales=scales)) == values(grid())


def test_what_a_scale_replaces_is_as_written() -> None:
    scales = {"quick": {"dataset": "digits", "attack": {"iterations": 60}}}
    found = grid("quick", {"quick": {"attack": "dlg+iterations=5"}}, scales=scales)
    assert values(found) == ["dlg+iterations=5"]
    assert proxies(found)["dataset"] == {"digits": "mnist"}
    kept = grid("quick", {"quick": {"proxy_for": {"digits": None}}}, scales=scales)
    assert "dataset" not in proxies(kept)


def test_fields_of_nested_specs_are_patched() -> None:
    patch = {"attack": {"rog": {"postprocessor": {"steps": 5}}}}
    found = grid("quick", {"attack": ["rog"], "quick": patch})
    assert values(found) == ["rog+postprocessor=postprocessor~steps=5"]
    assert found.names.label("attack", parse("attack", values(found)[0])) == "ROG"
    both = grid("quick", {"attack": ["rog", "rog+labels=known"], "quick": patch})
    assert values(both)[1] == "rog+labels=known"
    with pytest.raises(SpecError, match="'postprocessor' is None, which has no fields"):
        with_fields(parse("attack", "rog"), {"postprocessor": {"steps": 5}})


CIRCLE = {"a": {"base": "b"}, "b": {"base": "a"}, "CPL": {"base": "a"}}


@pytest.mark.parametrize(
    ("fields", "variants", "fault"),
    [
        ({"attack": "CLP"}, {}, r"axis 'attack': unknown attack 'CLP'; .*or a variant: CPL, DLG"),
        ({"quick": {"attack": {"itertions": 3}}}, {}, "'itertions' matches no attack"),
        ({"quick": {"attack": {"rog": {"iterations": 3}}}}, {}, "'rog' matches no attack; .*CPL"),
        ({"quick": {"attack": {"dlg": 3}}}, {}, "'dlg': 3 is no mapping of fields"),
        ({"quick": {"attack": {"only": ["rog"]}}}, {}, "only: 'rog' is not on the axis; .*DLG"),
        ({}, {"attack": CIRCLE}, "circular base: a -> b -> a|circular base: CPL -> a -> b -> a"),
        (
            {},
            {"attack": {"a": "dlg", "b": {"base": "a", "label": "a"}}},
            "'a' and 'b' have the sam",
        ),
        ({}, {"atack": {}}, "variants: unknown level 'atack'; did you mean 'attack'"),
    ],
)
def test_faults_name_the_key_and_the_nearest_name(
    fields: dict[str, Any], variants: dict[str, Any], fault: str
) -> None:
    with pytest.raises(SpecError, match=fault):
        grid("quick", fields, **({"variants": variants} if variants else {}))


def written(tmp_path: Path, **content: Any) -> Path:
    file = {"title": "t", "paper": "p", "figures": {}, **STUDY, **content}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(file, sort_keys=False), encoding="utf-8")
    return path


def test_a_grid_is_a_change_of_another(tmp_path: Path) -> None:
    first = {"attack": "CPL", "quick": {"dataset": "digits", "client": {"victims": 2}}}
    second = {"base": "first", "quick": {"dataset": "photos"}}
    grids = load_study(written(tmp_path, grids={"first": first, "second": second})).grids
    assert values(grids["second"]["quick"], "dataset") == ["photos"]
    assert values(grids["second"]["quick"], "client") == ["fedsgd+victims=2"]
    assert values(grids["second"]["paper"], "dataset") == ["mnist"]


CPL = {"attack": "CPL"}
NO_GPU = "the scale gpu has been removed; use paper on a GPU"


@pytest.mark.parametrize(
    ("grids", "scales", "fault"),
    [
        ({"a": {"base": "b"}, "b": {"base": "a"}}, {}, "grids: circular base: a -> b -> a"),
        ({"first": CPL, "a": {"base": "frist"}}, {}, "grids: 'a': unknown base 'frist'; did .*'fi"),
        (
            {"a": CPL},
            {"quick": {"client": {"victms": 1}}},
            "'victms' matches no client; .*'victims'",
        ),
        ({"a": CPL | {"gpu": {"dataset": "mnist"}}}, {}, NO_GPU),
        ({}, {"gpu": {"client": {"victims": 2}}}, NO_GPU),
    ],
)
def test_faults_of_studies_name_file_study_and_key(
    tmp_path: Path, grids: dict[str, Any], scales: dict[str, Any], fault: str
) -> None:
    with pytest.raises(SpecError, match=rf"mine\.yaml: study 'mine'.*{fault}"):
        load_study(written(tmp_path, grids=grids, scales=scales))


def test_a_key_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, grids={})
    path.write_text(path.read_text() + "grids: {}\n")
    with pytest.raises(SpecError, match=r"line \d+: key 'grids' is given twice"):
        load_study(path)


def test_a_variant_that_a_scale_replaces_keeps_its_label_in_headings() -> None:
    names = grid("quick", {"attack": ["CPL"], "quick": {"attack": "dlg"}}).names
    (ours,) = names.axis("attack")[:1]
    assert names.heading("attack", ours) == "dlg (for CPL)"
