"""Tiny datasets and the files that the stages make of them."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar

import h5py
import numpy as np
import pytest
import torch
import yaml
from hypothesis import settings

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.integrity import digest_values, is_text, seal, seal_group
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.base import AttackSpec
from gleak.core import registry
from gleak.core.registry import nested
from gleak.core.spec import parameter
from gleak.knowledge.autoencoder import Codec
from gleak.runtime import hub_weights
from gleak.runtime.device import use_exact_kernels
from gleak.runtime.perceptual import BACKBONES
from gleak.runtime.torchvision_ops import ensure_operators
from gleak.testing import tiny_cells
from gleak.testing.attack_contract import run_interrupted
from gleak.testing.tiny_cells import TinyCells, tiny_images, tiny_rows

pytest_plugins = ["tests.score_tables"]

ROOT = Path(__file__).parents[1]
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
torch.set_num_threads(1)
gc.set_threshold(50_000)  # each full collection visits a million objects of the imported modules

GIGABYTE = 2**30
Simulate = Callable[..., Path]
Forge = Callable[[Path], AbstractContextManager[h5py.File]]


@pytest.fixture(scope="session", autouse=True)
def no_flushes_to_disk() -> Iterator[None]:
    """Do not wait for the disk: files of tests need not survive a power failure."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def torch_defaults() -> Iterator[None]:
    """Kernels as torch has them by default: TF32 in convolutions, and any of cuDNN's."""
    restore = use_exact_kernels()
    torch.backends.cudnn.deterministic = False
    torch.backends.cudnn.allow_tf32 = True
    yield
    restore()


@pytest.fixture(scope="session")
def forged() -> Forge:
    """Edit an artifact as one who knows its format does: with the digests of what it is then."""

    @contextmanager
    def edit(path: Path) -> Iterator[h5py.File]:
        with h5py.File(path, "r+") as file:
            yield file
            file.visititems(_seal_dataset)
            seal_group(file)

    return edit


def _seal_dataset(name: str, item: h5py.HLObject) -> None:
    if isinstance(item, h5py.Dataset):
        values = item.asstr()[()] if is_text(item.dtype) else item[()]
        seal(item, digest_values(np.asarray(values)))


@pytest.fixture
def study_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one of the repository's studies, and its configuration for that; entered."""
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies/cpl.yaml").write_bytes((ROOT / "studies/cpl.yaml").read_bytes())
    config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**config, "studies": ["cpl"]}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment file of two lines, in a folder of its own; entered."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "deployment.yaml"
    file.write_text("model: lenet\ndata: digits\n")
    return file


@pytest.fixture
def little_memory() -> Iterator[None]:
    """What would be taken beyond a gigabyte more than now fails."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + GIGABYTE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def stops() -> Callable[[Callable[[], Any]], tuple[Any, int]]:
    """Run a job again and again until it ends, asked to stop at a later occasion every time.

    Gives what it came to in the end, and how often it was stopped before.
    """
    return run_interrupted


class Bringing(AttackSpec):
    """Paints every sample as its codec, if it brings one, decodes zeros."""

    name: ClassVar[str] = "bringing"

    codec: Annotated[Codec, nested("knowledge")] | None = parameter(None, "what it brings")

    def reconstruct(self, observation: Any) -> Reconstruction:
        """See `AttackSpec.reconstruct`."""
        shape = (observation.victims, observation.batch_size)
        grey = torch.zeros(1, self.codec.size)
        image = observation.knowledge["codec"].decode(grey).numpy()
        return Reconstruction(
            inputs=np.tile(image, (*shape, 1, 1, 1)),
            labels=np.zeros(shape, int),
            converged=np.ones(shape[0], bool),
        )


@pytest.fixture
def bringing(monkeypatch: pytest.MonkeyPatch) -> type[AttackSpec]:
    """An attack of that name, registered while the test runs."""
    registry.load("attack")
    monkeypatch.setitem(registry._REGISTERED["attack"], Bringing.name, Bringing)
    return Bringing


@pytest.fixture(scope="session")
def images() -> Dataset:
    """Images whose brightness says their class; 40 to train with and 24 to test with."""
    return tiny_images()


@pytest.fixture(scope="session")
def table() -> Dataset:
    """Rows of six numbers, the first of which says their class."""
    return tiny_rows()


@pytest.fixture(scope="session")
def cells(tmp_path_factory: pytest.TempPathFactory) -> TinyCells:
    """Cells of tiny victims, each made once."""
    return TinyCells(tmp_path_factory.mktemp("cells"))


@pytest.fixture(scope="session")
def learned(cells: TinyCells) -> Callable[[str], Path]:
    """A file of small knowledge of a name, trained on the tiny images for two steps."""
    return cells.learned


@pytest.fixture(scope="session")
def codec(learned: Callable[[str], Path]) -> Path:
    """A file of ``codec+steps=2+batch_size=4+width=4+size=32``."""
    return learned("codec")


@pytest.fixture(scope="session")
def random_backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights for the backbone of LPIPS, in a TORCH_HOME of their own."""
    ensure_operators()
    from torchvision.models import squeezenet1_1

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = squeezenet1_1(weights=None)
    path = tmp_path_factory.mktemp("torch") / "hub" / "checkpoints" / BACKBONES["squeeze"].file
    path.parent.mkdir(parents=True)
    torch.save(backbone.state_dict(), path)
    return path


@pytest.fixture
def random_weights(
    random_backbone: Path, monkeypatch: pytest.MonkeyPatch, published: Callable[[Path], None]
) -> Path:
    """A TORCH_HOME whose backbone is random: enough for everything but the values."""
    monkeypatch.setenv("TORCH_HOME", str(random_backbone.parents[2]))
    published(random_backbone)
    return random_backbone


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let a file have the digest that gleak expects of its name, while the test runs."""

    def expect(path: Path) -> None:
        digest = sha256(path.read_bytes()).hexdigest()
        monkeypatch.setitem(hub_weights.DIGESTS, path.name, (digest,))

    return expect


@pytest.fixture
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty TORCH_HOME."""
    folder = tmp_path / "empty"
    monkeypatch.setenv("TORCH_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def fitting_model() -> Callable[..., str]:
    """The first small model for data of a modality that fits what is chosen at other levels."""
    return tiny_cells.fitting_model


@pytest.fixture(scope="session")
def simulate(cells: TinyCells) -> Simulate:
    """Run the stages up to the update, once for each choice; gives the folder they wrote."""
    return cells.simulate
