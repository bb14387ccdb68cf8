"""A recipe of the form of FLARE's hello-pt in its simulator, with one line more; needs FLARE."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from gleak.captures.round_folder import RoundFolder, recorded_fields

pytestmark = pytest.mark.slow
pytest.importorskip("nvflare", reason="FLARE is an extra, not installed: make test-flower")

ROOT = Path(__file__).parents[3]
MODEL = """
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.flat, self.dense = nn.Flatten(), nn.Linear(12, 3)

    def forward(self, x):
        return self.dense(self.flat(x))


def to_intensity(inputs):
    return (inputs + 1) / 2
"""
CLIENT = """
import torch
from small_parts import Small
from torch import nn

import nvflare.client as flare

model, loss = Small(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images, labels = 2 * torch.rand(8, 3, 2, 2) - 1, torch.arange(8) % 3
flare.init()
while flare.is_running():
    received = flare.receive()
    model.load_state_dict(received.params)
    with torch.no_grad():
        loss(model(images), labels)
    for x, y in zip(images.split(4), labels.split(4)):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    params = {name: value.detach().clone() for name, value in model.state_dict().items()}
    flare.send(flare.FLModel(params=params, meta={"NUM_STEPS_CURRENT_ROUND": 2}))
"""
JOB = """
import sys

from small_parts import Small
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv

from gleak.captures.frameworks.nvflare import capture_rounds

recipe = FedAvgRecipe(
    name="small", min_clients=2, num_rounds=2, model=Small(), train_script="small_client.py"
)
capture_rounds(recipe, f"{sys.argv[1]}/captured", [0, 1], samples="small_parts.to_intensity")
recipe.execute(SimEnv(num_clients=2, workspace_root=f"{sys.argv[1]}/workspace"))
"""


def replayed(path: Path, before: Path, truth: Path, rate: float) -> float:
    """Relative error of the client's update, computed from its samples with momentum."""
    start, end, held = (load_file(each) for each in (before, path, truth))
    model = nn.Linear(12, 3)
    model.load_state_dict({name.removeprefix("dense."): value for name, value in start.items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    inputs = (2 * held["inputs"] - 1).flatten(1)
    for x, y in zip(inputs.split(4), held["labels"].split(4), strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    sent = torch.cat([(end[name] - start[name]).flatten() for name in start])
    own = {f"dense.{name}": value.detach() for name, value in model.named_parameters()}
    found = torch.cat([(own[name] - start[name]).flatten() for name in start])
    return float((found - sent).norm() / sent.norm())


def test_rounds_of_clients_with_momentum_are_captured_and_replayed(tmp_path: Path) -> None:
    """In the second round the momentum of the first is left, which no one but the client knows."""
    for name, text in {"small_parts": MODEL, "small_client": CLIENT, "job": JOB}.items():
        (tmp_path / f"{name}.py").write_text(text)
    path = os.pathsep.join(
        [str(tmp_path), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    done = subprocess.run(
        [sys.executable, "job.py", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (tmp_path / "captured").is_dir(), done.stdout
    errors = []
    fields = {"batch_size": "8", "local_lr": "0.01", "local_steps": "2", "mini_batch": "4"}
    fields["optimizer"] = "sgd~momentum=0.9"
    for number, state in enumerate(({}, {"state": "kept"})):
        files = RoundFolder(tmp_path / f"captured/round-{number}").files()
        assert recorded_fields(files.sent) == fields | state
        for sent, truth in zip(files.sent, files.truth, strict=True):
            errors.append(replayed(sent, files.before, truth, 0.01))
    assert max(errors[:2]) < 1e-5
    assert min(errors[2:]) > 0.1
