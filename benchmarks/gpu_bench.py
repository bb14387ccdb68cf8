"""What the steps of the GPU check measure with: cells without their data, time, memory, launches.

Cells are attacked as the workflow does, on smooth random images and initial parameters. Where
memory is measured, a CPU stands aside for gleak's virtual GPU.
"""

from __future__ import annotations

import copy
import logging
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from signal import SIGTERM, raise_signal
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from gleak.artifacts.reconstruction import Reconstruction
from gleak.artifacts.update import Granted, Update
from gleak.attacks import cpa
from gleak.attacks.matching import search
from gleak.attacks.matching.gradient_matching import GradientMatching
from gleak.attacks.matching.problem import CodedProblem, Problem
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import Target, observation_of, parameters_read, reconstruct, rehearse
from gleak.attacks.unmixing.relu_search import draw_samples
from gleak.core.spec import changed
from gleak.models.broadcast import prepare_layers
from gleak.rehearsal.rehearsed_stages import SingleSteps, blank_network, blank_observation
from gleak.runtime.checkpointing import Journal, State
from gleak.runtime.gpu_loop import WAITED
from gleak.runtime.virtual_gpu import VirtualGPU
from gleak.simulation.victims import Simulation
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.estimate import ASSUMED_CLASSES
from gleak.studies.study import load_study
from gleak.training.base import initialise

STUDIES = Path(__file__).parents[1] / "studies"
CPU = torch.device("cpu")
VIRTUAL_BYTES = 80 * 10**9
PIXELS = 0.05
"""Samples that differ by less show the same; those of two attacks that failed differ by 0.2."""
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpy", "cudaMemset")


def cell_of(path: str) -> Cell:
    return Cell.parse(dict(zip(LEVELS, path.split("/"), strict=True)))


def study_cell(study: str, grid: str, attack: str, scale: str) -> Cell:
    """Return the last cell of a grid whose attack has this name."""
    found = load_study(STUDIES / f"{study}.yaml", (scale,)).grid(grid, scale).cells
    return [cell for cell in found if cell.attack.name == attack][-1]


def with_fields(cell: Cell, level: str, **fields: Any) -> Cell:
    return Cell({**cell.specs, level: changed(cell.specs[level], fields)})


def budgeted(cell: Cell, iterations: int) -> Cell:
    """Return the cell with this budget, which every victim spends: none converges or stalls."""
    fields: dict[str, Any] = {"iterations": iterations}
    if getattr(cell.attack, "threshold", None):
        fields["threshold"] = 1e-30
    if hasattr(cell.attack, "patience"):
        fields["patience"] = 10**6
    return with_fields(cell, "attack", **fields)


def smooth_images(count: int, shape: tuple[int, ...]) -> Tensor:
    stream, drawn = torch.Generator().manual_seed(0), torch.empty(0, *shape)
    while len(drawn) < count:
        drawn = torch.cat([drawn, draw_samples(shape, stream)])
    return drawn[:count]


def observe(cell: Cell, device: torch.device = CPU) -> tuple[Observation, Tensor]:
    """Return what the server observes of simulated clients, and their samples.

    Parameters are the initial ones of the cell's training, knowledge is untrained. Clients compute
    on the device.
    """
    client, shape = cell.client, cell.dataset.shape
    victims, samples = client.victims, client.batch_size
    classes = cell.dataset.classes or ASSUMED_CLASSES
    network = prepare_layers(cell.model.build(shape, classes))
    initialise(network, cell.training.init, cell.training.bound, seed=0)
    network.to(device)
    truth = smooth_images(victims * samples, shape).unflatten(0, (victims, samples))
    stream = torch.Generator().manual_seed(1)
    labels = torch.randint(classes, (victims, samples), generator=stream)
    if client.labels == "unique":
        labels = torch.rand(victims, classes, generator=stream).argsort(1)[:, :samples]
    labels = labels.sort(1).values
    running = client.run(network)
    sent = Simulation(client, cell.defense, running, truth.numpy(), labels.numpy(), seed=0).run()
    knowledge = {
        each.knowledge.name: each.knowledge.build(each.dataset.shape, classes).eval()
        for each in cell.pretrainings
    }
    only = parameters_read(network, cell.attack.reads, shape)
    read = {name: each for name, each in sent.update.items() if only is None or name in only}
    observation = observation_of(
        Target(network, cell.dataset.modality, shape, classes, str(cell)),
        Update(protocol=client.protocol, update=read, broadcast=sent.broadcast),
        {
            name: Granted(grant=name, values=labels.numpy())
            for name in cell.attack.grants & {"labels"}
        },
        only=only,
        where="",
        seed=0,
        secret={},
        knowledge=knowledge,
    )
    return observation, truth


def placed(
    observation: Observation, device: torch.device, dtype: torch.dtype = torch.float32
) -> Observation:
    """Return a copy on a device, in a precision, whose method of differentiation is not chosen."""

    def moved(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: value.to(device, dtype if value.is_floating_point() else None)
            for name, value in values.items()
        }

    return replace(
        observation,
        update=moved(observation.update),
        granted=moved(observation.granted),
        model=copy.deepcopy(observation.model).to(device, dtype),
        knowledge={n: copy.deepcopy(each).to(device) for n, each in observation.knowledge.items()},
        verified_methods={},
    )


def problem_of(cell: Cell, observation: Observation) -> Problem:
    """Return the problem that an attack by gradient matching searches."""
    parts = cell.attack.parts()
    problem = GradientMatching.of(observation, parts)
    coder = parts.code.coder(observation)
    return problem if coder is None else CodedProblem.of(problem, coder)


class Operations(TorchDispatchMode):
    """Counts the operations in a block."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Any] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket] += 1
        return func(*args, **(kwargs or {}))


class Watched(Journal):
    """Journal that counts its looks at a search, can send a SIGTERM at one, and keeps the chunk.

    The chunk is the number of victims that a search first advances at once.
    """

    def __init__(self, path: Path | None = None, stop_at: int = 0) -> None:
        super().__init__(path, origin="gpu check")
        self.looks, self.stop_at, self.chunk = 0, stop_at, 0

    @property
    def due(self) -> bool:
        self.looks += 1
        if self.looks == self.stop_at:
            raise_signal(SIGTERM)
        return super().due

    def keep(self, prefix: str, state: State) -> None:
        self.chunk = self.chunk or int(state.get("chunk", 0))
        super().keep(prefix, state)


class WatchedSteps(SingleSteps):
    """The same of a rehearsal, whose searches take one step."""

    chunk = 0

    def keep(self, prefix: str, state: State) -> None:
        self.chunk = self.chunk or int(state.get("chunk", 0))


@dataclass(frozen=True)
class Bench:
    """Device under test, scale, and a folder for checkpoints."""

    device: torch.device
    small: bool
    folder: Path

    @property
    def gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def scale(self) -> str:
        return "quick" if self.small else "paper"

    def clock(self) -> float:
        """Return the time in seconds, once the device has done all that it was given."""
        if self.gpu:
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def seconds(self, action: Callable[[], object], repeats: int = 1) -> float:
        """Return the seconds of a call, the least of some."""
        spent = []
        for _ in range(repeats):
            began = self.clock()
            action()
            spent.append(self.clock() - began)
        return min(spent)

    def per_iteration(
        self,
        cell: Cell,
        observation: Observation,
        budgets: tuple[int, int],
        measure: Callable[[Callable[[], object]], float],
    ) -> float:
        """Measure a search with two budgets and return the difference, for each iteration.

        What a search does once cancels. The first run, not counted, chooses the method.
        """

        def run(iterations: int) -> Callable[[], object]:
            return lambda: reconstruct(budgeted(cell, iterations).attack, observation, 0)

        few, more = budgets
        run(few)()
        return (measure(run(more)) - measure(run(few))) / (more - few)

    def launches(self, action: Callable[[], object]) -> int:
        """Count the launches of kernels, copies and graphs; on a CPU the operations."""
        if not self.gpu:
            with Operations() as seen:
                action()
            return seen.counts.total()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as told:
            action()
            self.clock()
        return sum(each.name.startswith(LAUNCHES) for each in told.events())

    def synchronisations(self, action: Callable[[], object]) -> int:
        """Count the times that the host waits for the GPU; on a CPU the values that it reads."""
        if not self.gpu:
            with Operations() as seen:
                action()
            return seen.counts[torch.ops.aten._local_scalar_dense]
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                action()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return sum(WAITED in str(each.message) for each in told)

    @contextmanager
    def memory(self, capacity: int | None = None) -> Iterator[Callable[[], int]]:
        """Limit the memory in the block to so many bytes; yields a function, the peak so far."""
        if not self.gpu:
            with VirtualGPU(capacity or VIRTUAL_BYTES) as gpu:
                yield lambda: gpu.peak
            return
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        total = torch.cuda.get_device_properties(self.device).total_memory
        share = min(1.0, (before + capacity) / total) if capacity else 1.0
        torch.cuda.set_per_process_memory_fraction(share, self.device)
        try:
            yield lambda: torch.cuda.max_memory_allocated(self.device) - before
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, self.device)
            torch.cuda.empty_cache()

    def prepared(self, cell: Cell) -> Observation | None:
        """Return an observation in host memory, computed on the GPU; the virtual one needs none."""
        return placed(observe(cell, self.device)[0], CPU) if self.gpu else None

    def attack_once(
        self, cell: Cell, observation: Observation | None, methods: dict[str, Any]
    ) -> tuple[Reconstruction | None, int]:
        """Take one iteration on the GPU, or on the virtual one without result.

        Args:
            cell: with the attack.
            observation: as `prepared` returns it.
            methods: verified methods of the network, to which the first attack adds.

        Returns:
            The result, and the number of victims that were first advanced at once.
        """
        cell = budgeted(cell, 1)
        if observation is None:
            classes, steps = cell.dataset.classes or ASSUMED_CLASSES, WatchedSteps()
            network = blank_network(cell.model, cell.dataset.shape, classes)
            blank = blank_observation(cell, network, classes, methods)
            rehearse(cell.attack, replace(blank, journal=steps))
            return None, steps.chunk
        journal = Watched()
        given = replace(placed(observation, self.device), journal=journal, verified_methods=methods)
        return reconstruct(cell.attack, given, 0), journal.chunk


@dataclass(frozen=True)
class Finding:
    """What was measured and expected, with the limit's reason; passed is None for a note."""

    check: str
    passed: bool | None
    measured: str
    expected: str


Run = Callable[[Bench], Iterator[Finding]]


@dataclass(frozen=True)
class Step:
    """A step, the call that it belongs to, the seconds that it should take, and may take."""

    run: Run
    part: int
    expected: int
    limit: int

    @property
    def title(self) -> str:
        text = self.run.func if isinstance(self.run, partial) else self.run
        return (text.__doc__ or "").splitlines()[0]


STEPS: dict[str, Step] = {}


def step(part: int, expected: int, limit: int) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        STEPS[run.__name__] = Step(run, part, expected, limit)
        return run

    return register


@contextmanager
def tf32() -> Iterator[None]:
    """Compute products and convolutions in TF32, as torch does by default on a GPU."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    kept = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = kept


@contextmanager
def without_graphs() -> Iterator[None]:
    """Start kernels one by one in the block, and replay no CUDA graph."""
    with (
        patch.object(search, "graphs_on", return_value=None),
        patch.object(cpa, "graphs_on", return_value=None),
    ):
        yield


@contextmanager
def logged(level: int = logging.WARNING) -> Iterator[list[str]]:
    """Collect what gleak logs in the block, from a level on."""
    told: list[str] = []
    handler, logger = logging.Handler(level), logging.getLogger("gleak")
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(level)
    try:
        yield told
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
