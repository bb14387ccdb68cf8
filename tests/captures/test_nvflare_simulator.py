"""A job in FLARE's simulator, of whose two clients one exceeds a limit; skipped without FLARE."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.slow
pytest.importorskip("nvflare", reason="FLARE is an extra, not installed: make test-flower")

ROOT = Path(__file__).parents[2]
PARTS = """
import json

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey


def grown(before, after, truth):
    return {"grown": float((after["numpy_key"] - before["numpy_key"]).mean())}


class Receipts(FLComponent):
    '''Notes what the server receives of each client.'''

    def __init__(self, file):
        super().__init__()
        self.file = file

    def handle_event(self, event_type, fl_ctx):
        if event_type == EventType.BEFORE_PROCESS_SUBMISSION:
            result = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
            site = fl_ctx.get_peer_context().get_identity_name()
            content = {key: repr(value) for key, value in result.items()}
            with open(self.file, "a") as file:
                print(json.dumps([site, result.get_return_code(), content]), file=file)
"""
JOB = """
import sys

from flare_parts import Receipts
from nvflare import FedJob, FilterType
from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.app_common.np.np_trainer import NPTrainer
from nvflare.app_common.workflows.fedavg import FedAvg

from gleak.captures.nvflare import CapturingFilter, GaugingFilter

folder = sys.argv[1]
job = FedJob("limited")
job.set_app_packages(["gleak", "flare_parts"])
job.to_server(NPModelPersistor(model=[[0, 0, 0], [0, 0, 0]]), id="persistor")
job.to_server(FedAvg(num_clients=2, num_rounds=2, ignore_result_error=True))
job.to_server(Receipts(f"{folder}/receipts.jsonl"))
for site, growth in (("site-1", 1), ("site-2", 5)):
    job.to(NPTrainer(delta=growth), site, tasks=["train"])
    for kind in (FilterType.TASK_DATA, FilterType.TASK_RESULT):
        gauging = GaugingFilter("flare_parts.grown", limits={"grown": 3})
        job.to(gauging, site, tasks=["train"], filter_type=kind)
        captured = CapturingFilter(f"{folder}/captured", rounds=[0, 1])
        job.to(captured, site, tasks=["train"], filter_type=kind)
job.simulator_run(f"{folder}/workspace", threads=1)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the job, and what it printed."""
    folder = tmp_path_factory.mktemp("flare")
    (folder / "flare_parts.py").write_text(PARTS)
    (folder / "job.py").write_text(JOB)
    path = os.pathsep.join([str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "job.py", str(folder)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return folder, done.stdout


@pytest.fixture
def receipts(ran: tuple[Path, str]) -> list[Any]:
    """Site, return code and content of all that the server received."""
    folder, printed = ran
    file = folder / "receipts.jsonl"
    assert file.is_file(), printed
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_server_receives_an_error_in_place_of_an_update_above_the_limit(
    receipts: list[Any],
) -> None:
    codes = sorted((site, code) for site, code, _ in receipts)
    assert codes == [("site-1", "OK")] * 2 + [("site-2", "TASK_RESULT_FILTER_ERROR")] * 2
    for site, _, content in receipts:
        assert ("DXO" in content) == (site == "site-1"), content


def test_the_federation_goes_on_with_the_other_client(ran: tuple[Path, str]) -> None:
    """Whose updates are then the whole mean."""
    folder, _ = ran
    before = load_file(folder / "captured/round-1/before.safetensors")
    assert (before["numpy_key"] == 1).all()
