"""Jobs in FLARE's simulator, of whose two clients one exceeds a limit; skipped without FLARE."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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

from gleak.captures.frameworks.nvflare import BudgetedGaugingFilter, CapturingFilter, GaugingFilter

folder, ignores, budgeted = sys.argv[1], "ignores" in sys.argv, "budgeted" in sys.argv
measured = "flare_parts.grown", {"grown": 3}
job = FedJob("limited")
job.set_app_packages(["gleak"])
job.to_server(NPModelPersistor(model=[[0, 0, 0], [0, 0, 0]]), id="persistor")
job.to_server(FedAvg(num_clients=2, num_rounds=2, ignore_result_error=ignores or None))
job.to_server(Receipts(f"{folder}/receipts.jsonl"))
for site, growth in (("site-1", 1), ("site-2", 5)):
    job.to(NPTrainer(delta=growth), site, tasks=["train"])
    for kind in (FilterType.TASK_DATA, FilterType.TASK_RESULT):
        gauging = BudgetedGaugingFilter(*measured, 1e-9) if budgeted else GaugingFilter(*measured)
        job.to(gauging, site, tasks=["train"], filter_type=kind)
        captured = CapturingFilter(f"{folder}/captured", rounds=[0, 1])
        job.to(captured, site, tasks=["train"], filter_type=kind)
job.simulator_run(f"{folder}/workspace", threads=1)
"""


Receipt = tuple[str, str, dict[str, str]]


def simulate(folder: Path, *words: str) -> list[Receipt]:
    """Run the job; give site, return code and content of all that the server received."""
    (folder / "flare_parts.py").write_text(PARTS)
    (folder / "job.py").write_text(JOB)
    path = os.pathsep.join([str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "job.py", str(folder), *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    file = folder / "receipts.jsonl"
    assert file.is_file(), done.stdout
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("words", [[], ["budgeted"]], ids=["every round", "budgeted"])
def test_the_server_receives_an_error_in_place_of_an_update_above_the_limit(
    tmp_path: Path, words: list[str]
) -> None:
    """A budget that pays for the first measurement only blocks the second update for the first."""
    receipts = simulate(tmp_path, "ignores", *words)
    codes = sorted((site, code) for site, code, _ in receipts)
    assert codes == [("site-1", "OK")] * 2 + [("site-2", "TASK_RESULT_FILTER_ERROR")] * 2
    for site, _, content in receipts:
        assert ("DXO" in content) == (site == "site-1"), content
    before = load_file(tmp_path / "captured/round-1/before.safetensors")
    assert (before["numpy_key"] == 1).all(), "the mean of the updates that arrived"


def test_a_server_that_ignores_no_error_ends_the_job(tmp_path: Path) -> None:
    receipts = simulate(tmp_path)
    assert ("site-2", "TASK_RESULT_FILTER_ERROR") in {(site, code) for site, code, _ in receipts}
    assert [path.name for path in (tmp_path / "captured").iterdir()] == ["round-0"]
