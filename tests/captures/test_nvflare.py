"""The filter for NVIDIA FLARE, as a client calls it; skipped without FLARE."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from gleak.captures.round_folder import RoundFolder, recorded_fields
from gleak.core.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore")
pytest.importorskip("nvflare", reason="FLARE is an extra, not installed: make test-flower")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable  # noqa: E402
from nvflare.apis.filter import FilterChainType, FilterContextKey  # noqa: E402
from nvflare.app_common.app_constant import AppConstants  # noqa: E402

from gleak.captures.nvflare import CapturingFilter  # noqa: E402

BEFORE = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array(3)}
AFTER = {"weight": BEFORE["weight"] * 0.9, "count": np.array(4)}


def passed(
    folder: Path, chain: str, values: Any, number: int = 0, site: str = "site-1", **dxo: Any
) -> dict[str, np.ndarray]:
    """What is left of values that pass a new filter, as each chain makes its own."""
    capturing = CapturingFilter(str(folder))
    capturing.set_prop(FilterContextKey.CHAIN_TYPE, chain)
    sent = DXO(dxo.pop("kind", DataKind.WEIGHTS), data=values, meta=dxo).to_shareable()
    sent.set_header(AppConstants.CURRENT_ROUND, number)
    context = SimpleNamespace(get_identity_name=lambda: site)
    return from_shareable(capturing.process(sent, context)).data


def receive(folder: Path, values: Any = BEFORE, **options: Any) -> dict[str, np.ndarray]:
    return passed(folder, FilterChainType.TASK_DATA_CHAIN, values, **options)


def send(folder: Path, values: Any = AFTER, **options: Any) -> dict[str, np.ndarray]:
    return passed(folder, FilterChainType.TASK_RESULT_CHAIN, values, **options)


def test_a_round_is_written_and_passes_unchanged(tmp_path: Path) -> None:
    for site in ("site-1", "site-2"):
        assert receive(tmp_path, site=site) is BEFORE
        assert send(tmp_path, site=site, **{MetaKey.NUM_STEPS_CURRENT_ROUND: 7}) is AFTER
    files = RoundFolder(tmp_path / "round-0").files()
    assert [path.name for path in files.sent] == [
        "client-site-1.safetensors",
        "client-site-2.safetensors",
    ]
    assert recorded_fields(files.sent) == {"local_steps": "7"}
    for path, state in ((files.before, BEFORE), (files.sent[0], AFTER)):
        found = load_file(path)
        assert found.keys() == state.keys()
        assert all(np.array_equal(found[name], value) for name, value in state.items())


def test_differences_are_added_to_what_was_received(tmp_path: Path) -> None:
    receive(tmp_path)
    send(tmp_path, {"weight": AFTER["weight"] - BEFORE["weight"]}, kind=DataKind.WEIGHT_DIFF)
    found = load_file(tmp_path / "round-0/client-site-1.safetensors")
    np.testing.assert_allclose(found["weight"], AFTER["weight"], rtol=1e-6)
    assert found["count"] == BEFORE["count"]


def test_other_rounds_pass(tmp_path: Path) -> None:
    assert receive(tmp_path, number=1) is BEFORE
    assert list(tmp_path.iterdir()) == []


def test_a_round_that_exists_is_refused(tmp_path: Path) -> None:
    receive(tmp_path)
    send(tmp_path)
    with pytest.raises(DataError, match=r"client-site-1\.safetensors already exists"):
        receive(tmp_path)
    with pytest.raises(DataError, match="began with other values"):
        receive(tmp_path, AFTER, site="site-2")
