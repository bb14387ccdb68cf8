"""Tiny datasets and the files that the stages make of them."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from itertools import count
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
from gleak.core.errors import IncompatibleError, StoppedError
from gleak.core.registry import nested, parse
from gleak.core.spec import build_spec, parameter
from gleak.crafting.base import PARAMETERS, craft_parameters
from gleak.experiments.cell import Cell
from gleak.knowledge.autoencoder import Codec
from gleak.knowledge.base import KnowledgeSpec
from gleak.knowledge.train_knowledge import train_knowledge
from gleak.runtime.checkpointing import Journal
from gleak.runtime.perceptual import WEIGHTS
from gleak.runtime.torchvision_ops import ensure_operators
from gleak.simulation.simulate import simulate_clients
from gleak.training.train_model import train_model

pytest_plugins = ["tests.score_tables"]

ROOT = Path(__file__).parents[1]
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
torch.set_num_threads(1)

CLASSES = 4
GIGABYTE = 2**30
IMAGE = (3, 8, 8)
COLUMNS = (6,)
MODELS = {"image": "lenet+width=4", "tabular": "mlp+hidden=16"}
DATASETS = {"image": "photos", "tabular": "breast_cancer"}
SMALL_MODELS = (
    "lenet+width=4",
    "mlp+hidden=16",
    "mlp+hidden=16+activation=relu",
    "vgg_small+width=8+hidden=24",
)
OTHERS = {
    "training": "untrained",
    "crafting": "honest",
    "client": "fedsgd",
    "defense": "none",
    "attack": "blind",
}
Simulate = Callable[..., Path]
Forge = Callable[[Path], AbstractContextManager[h5py.File]]


@pytest.fixture(scope="session", autouse=True)
def no_flushes_to_disk() -> Iterator[None]:
    """Do not wait for the disk: files of tests need not survive a power failure."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


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
def little_memory() -> Iterator[None]:
    """What would be taken beyond a gigabyte more than now fails."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + GIGABYTE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], tuple[Any, int]]:
    """Run a job again and again until it ends, asked to stop at a later occasion every time.

    Gives what it came to in the end, and how often it was stopped before.
    """

    def until_it_ends(job: Callable[[], Any]) -> tuple[Any, int]:
        for broken_off in count():
            left = [broken_off]

            def due(journal: Journal, left: list[int] = left) -> bool:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGTERM)
                left[0] -= 1
                return bool(journal._asked)

            monkeypatch.setattr(Journal, "due", property(due))
            with suppress(StoppedError):
                return job(), broken_off
        raise AssertionError("unreachable")

    return until_it_ends


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


def _labels(count: int) -> np.ndarray:
    return np.arange(count) % CLASSES


@pytest.fixture(scope="session")
def images() -> Dataset:
    """Images whose brightness says their class; 40 to train with and 24 to test with."""
    random = np.random.default_rng(0)

    def draw(labels: np.ndarray) -> np.ndarray:
        level = 50 * labels[:, None, None, None]
        return (level + random.integers(0, 60, (len(labels), *IMAGE))).astype(np.uint8)

    train, test = _labels(40), _labels(24)
    return Dataset(
        spec="tiny",
        train_inputs=draw(train),
        train_labels=train,
        test_inputs=draw(test),
        test_labels=test,
        class_names=np.array(list("abcd")),
    )


@pytest.fixture(scope="session")
def table() -> Dataset:
    """Rows of six numbers, the first of which says their class."""
    random = np.random.default_rng(0)

    def draw(labels: np.ndarray) -> np.ndarray:
        rows = random.random((len(labels), *COLUMNS))
        rows[:, 0] = (labels + rows[:, 0]) / CLASSES
        return rows.astype(np.float32)

    train, test = _labels(40), _labels(24)
    return Dataset(
        spec="rows",
        modality="tabular",
        train_inputs=draw(train),
        train_labels=train,
        test_inputs=draw(test),
        test_labels=test,
        class_names=np.array(list("abcd")),
        feature_names=np.array(list("uvwxyz")),
        feature_groups=np.arange(6),
    )


@pytest.fixture(scope="session")
def learned(images: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A file of small knowledge of a name, trained on the tiny images for two steps."""

    @cache
    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        images.write(folder / "dataset.h5")
        train_knowledge(
            smallest_knowledge(name, steps=2),
            folder / "dataset.h5",
            folder / "knowledge.h5",
            seed=1,
            device="cpu",
        )
        return folder / "knowledge.h5"

    return make


def smallest_knowledge(name: str, steps: int) -> KnowledgeSpec:
    """Knowledge as small as it goes."""
    size = {"size": 32} if "size" in registry.load("knowledge")[name].model_fields else {}
    small = {"steps": steps, "batch_size": 4, "width": 4}
    return build_spec(registry.find("knowledge", name), {**small, **size})


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
    path = tmp_path_factory.mktemp("torch") / "hub" / "checkpoints" / WEIGHTS
    path.parent.mkdir(parents=True)
    torch.save(backbone.state_dict(), path)
    return path


@pytest.fixture
def random_weights(random_backbone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TORCH_HOME whose backbone is random: enough for everything but the values."""
    monkeypatch.setenv("TORCH_HOME", str(random_backbone.parents[2]))
    return random_backbone


@pytest.fixture
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty TORCH_HOME."""
    folder = tmp_path / "empty"
    monkeypatch.setenv("TORCH_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def fitting_model() -> Callable[..., str]:
    """The first small model for data of a modality that fits what is chosen at other levels."""

    def choose(modality: str = "image", **levels: str) -> str:
        chosen = {**OTHERS, "dataset": DATASETS[modality], **levels}
        for model in SMALL_MODELS:
            try:
                Cell.parse({**chosen, "model": model})
            except IncompatibleError:
                continue
            return model
        raise AssertionError(f"{levels} fit none of {SMALL_MODELS}")

    return choose


@pytest.fixture(scope="session")
def simulate(images: Dataset, table: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """Run the stages up to the update, once for each choice; gives the folder they wrote."""
    made: dict[tuple[str, ...], Path] = {}

    def make(
        modality: str = "image",
        model: str = "",
        training: str = "untrained+init=uniform",
        client: str = "fedsgd+victims=3",
        defense: str = "none",
        crafting: str = "honest",
    ) -> Path:
        key = (modality, model, training, client, defense, crafting)
        if key not in made:
            folder = made[key] = tmp_path_factory.mktemp("cell")
            dataset = images if modality == "image" else table
            dataset.write(folder / "dataset.h5")
            architecture = parse("model", model or MODELS[modality])
            train_model(
                architecture,
                parse("training", training),
                folder / "dataset.h5",
                folder / "model.h5",
                seed=1,
                device="cpu",
            )
            server = parse("crafting", crafting)
            if not server.broadcasts_model:
                craft_parameters(server, folder / "model.h5", folder, seed=1)
            simulate_clients(
                parse("client", client),
                parse("defense", defense),
                folder / "dataset.h5",
                folder / ("model.h5" if server.broadcasts_model else PARAMETERS),
                folder,
                spec=f"{dataset.spec}/{architecture}",
                seed=1,
                device="cpu",
            )
        return made[key]

    return make
