"""Capture of NVIDIA FLARE rounds by a filter of the clients, which does not change what it filters.

The filter is added to the clients of a job twice, for what they receive and for what they send:

    job.to_clients(CapturingFilter("captured"), tasks=["train"], filter_type=FilterType.TASK_DATA)
    job.to_clients(CapturingFilter("captured"), tasks=["train"], filter_type=FilterType.TASK_RESULT)

Only this module needs FLARE, which is installed by ``pip install 'gleak[nvflare]'``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from typing_extensions import override

from gleak.artifacts.atomic import renamed
from gleak.captures.round_folder import ROUND, RoundFolder
from gleak.captures.states import State, read_state
from gleak.core.errors import needs_extra

with needs_extra("nvflare"):
    from nvflare.apis.dxo import DXO, DataKind, MetaKey
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.filter import FilterChainType, FilterContextKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.app_constant import AppConstants


class CapturingFilter(DXOFilter):
    """Filter that captures rounds in the files of ``gleak import --round``.

    As a filter of task data it writes ``round-<number>/before.safetensors``, as a filter of task
    results ``round-<number>/client-<site>.safetensors``, with the number of local steps if the
    client reports it. Place it last among the filters of results, where it sees what is sent.

    Args:
        folder: output folder on the client, which contains a folder for each round.
        rounds: numbers of the rounds to capture; FLARE counts from 0. By default only the first.

    Raises:
        DataError: the folder has this client's result of that round, or the round of another model.
    """

    def __init__(self, folder: str, rounds: list[int] | None = None) -> None:
        kinds = [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF]
        super().__init__(supported_data_kinds=kinds, data_kinds_to_filter=kinds)
        self.folder, self.rounds = folder, rounds or [0]

    @override
    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> None:
        """Write a captured round, and leave the data as they are."""
        number = shareable.get_header(AppConstants.CURRENT_ROUND)
        if number not in self.rounds:
            return
        files, site = (
            RoundFolder(Path(self.folder) / f"{ROUND}{number}"),
            fl_ctx.get_identity_name(),
        )
        if self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_DATA_CHAIN:
            _write_before(files, site, state_of(dxo.data))
        else:
            _write_after(files, site, dxo)


def _write_before(files: RoundFolder, site: str, before: State) -> None:
    files.check_new(site, before)
    with renamed(files.before) as temporary:
        save_file(dict(before), temporary)


def _write_after(files: RoundFolder, site: str, dxo: DXO) -> None:
    """Write what a client sends as its state after training."""
    after = state_of(dxo.data)
    if dxo.data_kind == DataKind.WEIGHT_DIFF:
        before = read_state(files.before)
        after = {**before, **{name: before[name] + change for name, change in after.items()}}
    steps = dxo.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND)
    with renamed(files.client(site)) as temporary:
        save_file(dict(after), temporary, {"local_steps": str(steps)} if steps else None)


def state_of(values: Mapping[str, Any]) -> State:
    """Return arrays or tensors as a state dict that can be saved."""
    return {
        name: torch.as_tensor(value).cpu().clone().contiguous() for name, value in values.items()
    }
