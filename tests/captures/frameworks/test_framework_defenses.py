"""Frameworks' own filters, mods and strategies against the defences of these names, bit for bit.

What is sent is compared as an update of parameters that are zero, since frameworks add updates to
parameters, which rounds them. Skipped without the framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import time
from typing import Any

import numpy as np
import pytest
import torch

from gleak.artifacts.encodings import Sparse
from gleak.core.registry import parse
from gleak.defenses.base import DefenseSpec
from gleak.runtime.seeding import numpy_stream

pytestmark = pytest.mark.filterwarnings("ignore")
SHAPES = {"b.weight": (30, 20), "b.bias": (30,), "a.weight": (7, 4, 3, 3), "scale": ()}
SEEDS = range(4)
Arrays = dict[str, np.ndarray]


def update(seed: int, size: float = 1e-3) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {name: size * torch.randn(1, *shape, generator=random) for name, shape in SHAPES.items()}


def arrays(values: dict[str, torch.Tensor]) -> Arrays:
    return {name: value[0].numpy().copy() for name, value in values.items()}


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed + 100)


def draw_as(seed: int) -> None:
    """Let numpy's global generator, from which frameworks draw, draw what the defence does."""
    np.random.set_state(numpy_stream(stream(seed)).get_state())


def sent(defense: DefenseSpec, values: dict[str, torch.Tensor], seed: int) -> Arrays:
    protected = defense.protect(values, stream(seed), {})
    return {name: one.decode()[0, 0] for name, one in protected.items()}


def check_equal(found: Arrays, expected: Arrays) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.asarray(value).dtype == found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], value, err_msg=name)


# NVIDIA FLARE


def filtered(filtering: Any, values: Arrays, steps: int) -> Any:
    """The DXO that leaves a filter of a client's result, which reports its steps."""
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.fl_context import FLContext

    meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: steps} if steps > 1 else {}
    passed = DXO(DataKind.WEIGHT_DIFF, data=values, meta=meta).to_shareable()
    return from_shareable(filtering.process(passed, FLContext()))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize(("percentile", "gamma"), [(10, 0.01), (90, 1e-3), (0, 1.0), (100, 1e-4)])
def test_percentile_privacy(percentile: int, gamma: float, steps: int, seed: int) -> None:
    filters = pytest.importorskip("nvflare.app_common.filters.percentile_privacy")
    theirs = filters.PercentilePrivacy(percentile, gamma)
    expected = filtered(theirs, arrays(update(seed)), steps).data
    ours = parse("defense", f"flare_percentile+{percentile=}+{gamma=}+{steps=}")
    check_equal(sent(ours, update(seed), seed), expected)


BUDGETS: list[dict[str, Any]] = [
    {},
    {"epsilon": 5.0, "noise_var": 2.0, "gamma": 1e-3, "tau": 1e-4, "fraction": 0.5},
    {"epsilon": 5.0, "gamma": 1e-3, "replace": False, "epsilon_threshold": 1.0},
    {"epsilon": 5.0, "gamma": 1e-3, "fraction": 1.0, "epsilon_query": 1.5, "epsilon_release": 9.0},
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_sparse_vector_privacy(budget: dict[str, Any], steps: int, seed: int) -> None:
    filters = pytest.importorskip("nvflare.app_common.filters.svt_privacy")
    theirs, values = filters.SVTPrivacy(**budget), update(seed)
    draw_as(seed)
    expected = filtered(theirs, arrays(values), steps)
    fields = "".join(f"+{key}={str(value).lower()}" for key, value in budget.items())
    ours = parse("defense", f"flare_svt{fields}+{steps=}")
    check_equal(sent(ours, values, seed), dict(expected.data))
    size = sum(value.numel() for value in values.values())
    assert ours.stated_epsilon(size) == pytest.approx(theirs.get_privacy_spent(), rel=1e-12)


def test_sparse_vector_privacy_of_parameters_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLARE draws from chunks of a million values, here of 50."""
    filters = pytest.importorskip("nvflare.app_common.filters.svt_privacy")
    monkeypatch.setattr(filters, "_SVT_CHUNK_SIZE", 50)
    monkeypatch.setattr("gleak.defenses.flare_filters.CHUNK", 50)
    for replace in (True, False):
        draw_as(0)
        expected = filtered(filters.SVTPrivacy(replace=replace), arrays(update(0)), 1)
        ours = parse("defense", f"flare_svt+replace={str(replace).lower()}")
        check_equal(sent(ours, update(0), 0), dict(expected.data))


@pytest.mark.parametrize(
    ("given", "field"),
    [(["b.bias", "scale"], "names=b.bias-scale"), ("weight", "pattern=weight"), (None, "")],
)
def test_exclude_vars(given: Any, field: str) -> None:
    filters = pytest.importorskip("nvflare.app_common.filters.exclude_vars")
    expected = filtered(filters.ExcludeVars(given), arrays(update(0)), 1).data
    ours = parse("defense", f"flare_exclude+{field}" if field else "flare_exclude")
    protected = ours.protect(update(0), stream(0), {})
    left = {k: v for k, v in protected.items() if not isinstance(v, Sparse)}
    check_equal({name: one.decode()[0, 0] for name, one in left.items()}, expected)
    assert all(not one.sent().any() for k, one in protected.items() if k not in left)


# Flower


def message(content: dict[str, Any], reply_to: Any = None) -> Any:
    from flwr.app import Message, RecordDict
    from flwr.app.metadata import Metadata

    if reply_to is not None:
        return Message(RecordDict(content), reply_to=reply_to)
    addresses = {"run_id": 1, "message_id": "1", "src_node_id": 1, "dst_node_id": 2}
    rest = {"reply_to_message_id": "", "group_id": "", "created_at": time(), "ttl": 60.0}
    return Message(
        RecordDict(content), metadata=Metadata(**addresses, **rest, message_type="train")
    )


def record(values: Arrays) -> Any:
    from flwr.app import Array, ArrayRecord

    return ArrayRecord({name: Array(np.asarray(value)) for name, value in values.items()})


def read(reply: Any) -> Arrays:
    return {name: array.numpy() for name, array in reply.content["arrays"].items()}


def zeros() -> Arrays:
    return {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}


def modded(mod: Callable[..., Any], seed: int, before: Arrays | None = None, **config: Any) -> Any:
    """What a client sends under a mod."""
    from flwr.app import ConfigRecord, MetricRecord

    begin = zeros() if before is None else before
    after = {name: begin[name] + value for name, value in arrays(update(seed)).items()}

    def train(asked: Any, context: Any) -> Any:
        answer = {"arrays": record(after), "metrics": MetricRecord({"num-examples": 3})}
        return message(answer, asked)

    return mod(message({"arrays": record(begin), "config": ConfigRecord(config)}), None, train)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("norm", [1e-3, 100.0])
def test_clipping_mods(norm: float, seed: int) -> None:
    mods = pytest.importorskip("flwr.clientapp.mod")
    expected = sent(parse("defense", f"flower_clipping+{norm=}"), update(seed), seed)
    for mod in (mods.fixedclipping_mod, mods.adaptiveclipping_mod):
        check_equal(read(modded(mod, seed, clipping_norm=norm)), expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("clipping_norm", [1e-3, 100.0])
def test_local_dp(clipping_norm: float, seed: int) -> None:
    mods = pytest.importorskip("flwr.clientapp.mod")
    ours = parse(
        "defense", f"flower_local_dp+{clipping_norm=}+sensitivity=0.3+epsilon=8+delta=0.01"
    )
    draw_as(seed)
    found = read(modded(mods.LocalDpMod(clipping_norm, 0.3, 8, 0.01), seed))
    check_equal(sent(ours, update(seed), seed), found)


def test_local_dp_of_parameters_rounds_as_they_do() -> None:
    """The server subtracts the broadcast parameters from what it receives."""
    mods = pytest.importorskip("flwr.clientapp.mod")
    ours = parse("defense", "flower_local_dp+clipping_norm=0.01+epsilon=500")
    before = arrays(update(9, size=0.1))
    draw_as(0)
    found = read(modded(mods.LocalDpMod(0.01, 2, 500, 1e-5), 0, before))
    for name, value in sent(ours, update(0), 0).items():
        unit = 4 * np.spacing(np.abs(before[name]).max() + np.abs(value).max())
        np.testing.assert_allclose(found[name] - before[name], value, rtol=0, atol=unit)


def aggregated(strategy: Any, seed: int, client_side: bool) -> Arrays:
    """The global model after a round with four clients, of which some send long updates."""
    from flwr.app import ConfigRecord, MetricRecord

    mods = pytest.importorskip("flwr.clientapp.mod")
    adaptive = "Adaptive" in type(strategy).__name__
    replies = []
    for client in range(4):
        values = arrays(clients_update(seed, client))

        def train(asked: Any, context: Any, values: Arrays = values) -> Any:
            answer = {"arrays": record(values), "metrics": MetricRecord({"num-examples": 3})}
            return message(answer, asked)

        asked = message(
            {"arrays": record(zeros()), "config": ConfigRecord({"clipping_norm": 0.02})}
        )
        mod = mods.adaptiveclipping_mod if adaptive else mods.fixedclipping_mod
        replies.append(mod(asked, None, train) if client_side else train(asked, None))
    strategy.current_arrays = record(zeros())
    draw_as(seed)
    found, _ = strategy.aggregate_train(1, replies)
    return {name: array.numpy() for name, array in found.items()}


def clients_update(seed: int, client: int) -> dict[str, torch.Tensor]:
    return update(10 * seed + client, size=1e-3 if client else 1e-5)


class Mean:
    """A strategy that averages as the simulation of clients does."""

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, None]:
        each = [read(reply) for reply in replies]
        return record({k: np.mean([one[k] for one in each], 0) for k in each[0]}), None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("side", ["Client", "Server"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_central_dp(adaptive: bool, side: str, seed: int) -> None:
    strategies = pytest.importorskip("flwr.serverapp.strategy")
    kind = "Adaptive" if adaptive else "Fixed"
    make = getattr(strategies, f"DifferentialPrivacy{side}Side{kind}Clipping")
    theirs = make(Mean(), 0.3, 4, 0.02, 0.4, 0.5, 0.7) if adaptive else make(Mean(), 0.3, 0.02, 4)
    field = "+quantile=0.4+rate=0.5+count_deviation=0.7" if adaptive else ""
    ours = parse("defense", f"flower_central_dp+noise_multiplier=0.3+norm=0.02{field}")
    computed = [clients_update(seed, client) for client in range(4)]
    each = [sent(ours, one, seed) for one in computed]
    mean = {k: torch.from_numpy(np.mean([one[k] for one in each], 0)[None]) for k in SHAPES}
    found = arrays(ours.protect_mean(mean, computed, stream(seed)))
    check_equal(found, aggregated(theirs, seed, side == "Client"))
