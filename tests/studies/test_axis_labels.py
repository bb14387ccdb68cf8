from __future__ import annotations

from dataclasses import replace

import pytest

from gleak.core.errors import SpecError
from gleak.studies.axis_labels import Axis, AxisLabels, Place, check_axis, read_spec


def resolve(names: AxisLabels, level: str, wanted: str) -> str | None:
    value = names.resolve(level, wanted)
    return None if value is None else str(value)


def published(names: AxisLabels, level: str, text: str, known: list[str]) -> str | None:
    value = read_spec(level, text) if text else None
    found = names.published(level, value, [read_spec(level, other) for other in known])
    return None if found is None else str(found)


def label(names: AxisLabels, level: str, text: str) -> str:
    return names.label(level, read_spec(level, text))


def heading(names: AxisLabels, level: str, text: str) -> str:
    return names.heading(level, read_spec(level, text))


def test_only_attacks_have_a_truth():
    assert str(read_spec("attack", "truth")) == "truth"
    with pytest.raises(SpecError, match="unknown dataset 'truth'"):
        read_spec("dataset", "truth")


@pytest.mark.parametrize(
    ("level", "wanted", "value"),
    [
        ("dataset", "digits", "digits"),
        ("dataset", "cifar10", "photos"),
        ("dataset", "mnist", None),
        ("attack", "cpl", "cpl+restarts=0"),
        ("attack", "truth", "truth"),
        ("defense", "gaussian+std=1e-2", "gaussian"),
        ("defense", "laplace", "laplace+std=1e-4"),
        ("defense", "laplace+std=1e-2", None),
    ],
)
def test_a_value_is_meant_by_spec_stand_in_or_name(
    names: AxisLabels, level: str, wanted: str, value: str | None
):
    assert resolve(names, level, wanted) == value


def test_selecting_what_is_not_there_names_the_nearest(names: AxisLabels):
    with pytest.raises(SpecError, match=r"no dataset 'mnist'; .*valid: digits, photos"):
        names.select({"dataset": "mnist"})
    with pytest.raises(SpecError, match="did you mean 'dataset'"):
        names.select({"datset": "digits"})


@pytest.mark.parametrize(
    ("level", "value", "known", "compared"),
    [
        ("dataset", "photos", ["cifar10", "mnist"], "cifar10"),
        ("dataset", "digits", ["cifar10", "mnist"], None),
        ("attack", "cpl+restarts=0", ["cpl", "dlg"], "cpl"),
        ("attack", "blind", ["cpl", "dlg"], None),
        ("defense", "gaussian+std=1e-4", ["gaussian", "none"], None),
        ("defense", "gaussian", ["gaussian", "none"], "gaussian"),
    ],
)
def test_what_is_compared_with_the_paper(
    names: AxisLabels, level: str, value: str, known: list[str], compared: str | None
):
    assert published(names, level, value, known) == compared


MODELS = AxisLabels.read({"dataset": ("digits",), "model": ("lenet",), "training": ("central",)})


def test_a_level_that_a_grid_does_not_have_is_compared_with_nothing():
    assert published(MODELS, "attack", "", []) is None
    assert published(MODELS, "attack", "", ["cpl"]) is None


def test_metrics_are_of_attacks_or_of_models(names: AxisLabels):
    names.check_metric("success_content+threshold=0.01")
    MODELS.check_metric("test_accuracy")
    with pytest.raises(SpecError, match=r"'ssim' is of .* end with attack.*: test_accuracy"):
        MODELS.check_metric("ssim")
    with pytest.raises(SpecError, match=r"'test_accuracy' is of .* end with attack; .*lpips.* mse"):
        names.check_metric("test_accuracy")
    with pytest.raises(SpecError, match="unknown metric 'test_acuracy'; did you mean 'test_acc"):
        MODELS.check_metric("test_acuracy")


@pytest.mark.parametrize(
    ("level", "value", "text"),
    [
        ("dataset", "photos", "photos (for CIFAR-10)"),
        ("dataset", "digits", "digits"),
        ("attack", "cpl+restarts=0", "CPL"),
        ("defense", "gaussian+std=1e-4", "Gaussian (std=1e-4)"),
        ("defense", "gaussian", "Gaussian (std=0.01)"),
    ],
)
def test_headings_tell_values_apart(names: AxisLabels, level: str, value: str, text: str):
    assert heading(names, level, value) == text


@pytest.mark.parametrize(
    ("metric", "printed"),
    [
        ("mse", "MSE"),
        ("psnr", "psnr (dB)"),
        ("iterations", "iterations"),
        ("success_content+threshold=0.01", "success content (threshold=0.01)"),
    ],
)
def test_metrics_are_printed_with_their_unit(names: AxisLabels, metric: str, printed: str):
    assert names.metric(metric) == printed


EFFORTS = AxisLabels.read(
    {
        "attack": ("cpl+iterations=5", "cpl+iterations=5+start=normal"),
        "client": ("fedsgd+victims=2", "fedsgd+victims=4+batch_size=2"),
        "defense": ("gaussian", "gaussian+std=1e-3"),
    },
    labels={"cpl+start=normal": "random"},
)


def test_effort_makes_no_other_setting():
    assert resolve(EFFORTS, "attack", "cpl") == "cpl+iterations=5"
    assert resolve(EFFORTS, "client", "fedsgd+batch_size=2") == "fedsgd+victims=4+batch_size=2"
    assert resolve(EFFORTS, "attack", "cpl+start=dark") is None
    assert published(EFFORTS, "attack", "cpl+iterations=5", ["cpl", "cpl+start=dark"]) == "cpl"
    assert published(EFFORTS, "attack", "cpl+iterations=5", ["cpl+start=dark"]) is None


def test_effort_is_not_compared_where_it_is_what_varies():
    several = AxisLabels.read({"attack": ("cpl+iterations=5", "cpl+iterations=50")})
    assert resolve(several, "attack", "cpl") is None
    assert published(several, "attack", "cpl+iterations=5", ["cpl"]) is None
    assert label(several, "attack", "cpl+iterations=5") == "cpl (iterations=5)"


def test_labels_leave_effort_out():
    assert label(EFFORTS, "attack", "cpl+iterations=5") == "cpl (start=patterned)"
    assert label(EFFORTS, "attack", "cpl+iterations=5+start=normal") == "random"
    assert label(EFFORTS, "client", "fedsgd+victims=2") == "fedsgd (batch_size=1)"


def test_a_stand_in_of_the_same_name_is_not_announced():
    values = ("fedavg+local_steps=4+local_lr=0.001", "fedavg")
    names = AxisLabels.read({"client": values}, {"client": {values[0]: "fedavg+local_steps=4"}})
    assert "for" not in heading(names, "client", values[0])


ZIPPED = AxisLabels.read(
    {
        "dataset": ("mnist", "cifar10"),
        "model": ("lenet", "mlp"),
        "crafting": ("honest", "fishing"),
        "attack": ("dlg", "invertgrad", "fishing"),
    },
    zipped=[["dataset", "model"], ["crafting", "attack"]],
)


def rows_of(*texts: str) -> list[dict[str, str]]:
    return [dict(zip(ZIPPED.values, text.split("/"), strict=True)) for text in texts]


@pytest.mark.parametrize(
    ("texts", "told_apart"),
    [
        (["mnist/lenet/honest/dlg"], []),
        (["mnist/lenet/honest/dlg", "cifar10/mlp/honest/dlg"], ["dataset"]),
        (["mnist/lenet/honest/dlg", "cifar10/lenet/honest/dlg"], ["dataset"]),
        (["mnist/lenet/honest/dlg", "mnist/mlp/honest/dlg"], ["model"]),
        (["mnist/lenet/honest/dlg", "mnist/lenet/fishing/fishing"], ["crafting"]),
        (
            [f"mnist/lenet/{x}" for x in ("honest/dlg", "honest/invertgrad", "fishing/fishing")],
            ["attack"],
        ),
        (
            [f"mnist/lenet/{x}" for x in ("honest/dlg", "honest/invertgrad", "fishing/dlg")],
            ["crafting", "attack"],
        ),
        (
            [f"{x}/honest/{y}" for x in ("mnist/lenet", "cifar10/mlp") for y in ("dlg", "fishing")],
            ["dataset", "attack"],
        ),
    ],
)
def test_cells_are_told_apart_by_the_first_of_a_group_where_it_is_enough(
    texts: list[str], told_apart: list[str]
):
    assert ZIPPED.varying(ZIPPED.cells(rows_of(*texts))) == told_apart


TUNED = AxisLabels.read(
    {"attack": ("cpl+iterations=5+alpha=3", "cpl+iterations=5", "dlg")},
    labels={"cpl+alpha=0.5": "tuned"},
    bases={"attack": {"cpl+iterations=5+alpha=3": "cpl+iterations=5+alpha=0.5"}},
)


def test_what_a_search_chose_is_meant_by_what_it_began_with():
    chosen, plain, _ = TUNED.values["attack"]
    for wanted in (chosen, "cpl+iterations=5+alpha=0.5", "cpl+alpha=0.5"):
        assert resolve(TUNED, "attack", wanted) == chosen
    assert resolve(TUNED, "attack", "cpl") == plain
    assert published(TUNED, "attack", chosen, ["cpl", "cpl+alpha=0.5"]) == "cpl+alpha=0.5"
    assert published(TUNED, "attack", plain, ["cpl", "cpl+alpha=0.5"]) == "cpl"


def test_what_a_search_chose_is_called_as_what_it_began_with():
    chosen, plain, _ = TUNED.values["attack"]
    assert heading(TUNED, "attack", chosen) == "tuned"
    assert label(TUNED, "attack", plain) == "cpl (alpha=0)"
    bare = replace(TUNED, labels={})
    assert label(bare, "attack", chosen) == "cpl (alpha=0.5)"


def test_what_a_search_chose_is_told_from_what_it_began_with():
    both = AxisLabels.read(
        {"attack": ("cpl", "cpl+alpha=3")}, bases={"attack": {"cpl+alpha=3": "cpl"}}
    )
    assert resolve(both, "attack", "cpl") == "cpl"
    assert [label(both, "attack", value) for value in both.values["attack"]] == [
        "cpl (alpha=0)",
        "cpl (alpha=3)",
    ]


def test_a_name_is_label_enough_where_all_others_have_their_own():
    values = ("cpl+iterations=100", "cpl+iterations=100+alpha=1", "cpl+alpha=2")
    labels = {"cpl": "CPL", "cpl+alpha=1": "without labels", "cpl+alpha=2": "twice"}
    names = AxisLabels.read({"attack": values}, labels=labels)
    shown = [label(names, "attack", value) for value in values]
    assert shown == ["CPL", "without labels", "twice"]
    fewer = replace(names, labels={"cpl": "CPL", "cpl+alpha=2": "twice"})
    assert label(fewer, "attack", values[0]) == "CPL (alpha=0)"


@pytest.mark.parametrize(
    ("axis", "value", "expected"),
    [
        ("defense", "gaussian", read_spec("defense", "gaussian")),
        ("defense.name", "gaussian+std=1e-4", "gaussian"),
        ("defense.std", "gaussian+std=1e-4", 1e-4),
        ("defense.std", "gaussian", 1e-2),
        ("defense.std", "none", -1.0),
        ("attack.restarts", "cpl+restarts=3", 3.0),
        ("attack.restarts", "truth", -1.0),
        ("attack.start", "cpl", read_spec("start", "patterned")),
        ("client.labels", "fedsgd+labels=unique", "unique"),
    ],
)
def test_places(axis: str, value: str, expected: Place):
    read = Axis.read(axis)
    assert read.place(read_spec(read.level, value), missing=-1.0) == expected


@pytest.mark.parametrize(
    ("axis", "fault"),
    [
        ("defence", "unknown axis 'defence'; did you mean 'defense'"),
        ("defense.sdt", "no defense of the grid has 'sdt'; did you mean 'std'"),
        ("dataset.std", "no dataset of the grid has 'std'"),
    ],
)
def test_unknown_axes_are_refused(names: AxisLabels, axis: str, fault: str):
    with pytest.raises(SpecError, match=fault):
        check_axis(axis, names)


@pytest.mark.parametrize(
    ("axis", "value", "label", "alone"),
    [
        ("dataset", "photos", "photos (for CIFAR-10)", "photos (for CIFAR-10)"),
        ("defense.name", "gaussian", "Gaussian", "Gaussian"),
        ("defense.std", "gaussian", "0.01", "std 0.01"),
    ],
)
def test_labels_of_places(names: AxisLabels, axis: str, value: str, label: str, alone: str):
    read = Axis.read(axis)
    spec = read_spec(read.level, value)
    assert (read.label(names, spec), read.label_alone(names, spec)) == (label, alone)
