"""Steps of the GPU check: each yields findings, with their limits and why these are the limits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_bench import (
    CPU,
    PIXELS,
    STEPS,
    Bench,
    Finding,
    Step,
    Watched,
    cell_of,
    logged,
    observe,
    placed,
    problem_of,
    step,
    study_cell,
    tf32,
    with_fields,
    without_graphs,
)
from benchmarks.plain_autograd import seconds_of_matching
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import reconstruct
from gleak.core.errors import GleakError, StoppedError
from gleak.models.differentiation import differentiable_kernels
from gleak.runtime.device import free_memory
from gleak.runtime.gpu_loop import CUDAGraphs, GraphedCall, graphs_on
from gleak.studies.cell import Cell
from gleak.studies.estimate import update_bytes

LENET = "cifar10/lenet/untrained+init=uniform/honest/fedsgd+victims={}/none/cpl"
RESNET = (
    "cifar10/resnet20+normalise=cifar10/untrained+init=kaiming/honest/fedsgd+victims={}/none/"
    "invertgrad+labels=known"
)
ROG = (
    "cifar10/lenet/untrained/honest/fedavg+victims=2+batch_size=2+local_steps=2+local_lr=5e-3/none/"
    "rog+labels=known"
)
PRECISION = (
    LENET.format(2),
    "cifar10/fc2/untrained/honest/fedsgd+victims=2/none/cpl",
    "cifar10/resnet20+activation=tanh/untrained/honest/fedsgd+victims=2/none/cpl",
    RESNET.format(2).replace("+normalise", "+activation=tanh+normalise"),
)
"""With smooth activations: rounding moves a ReLU from one side to the other now and then, which
changes the slope by 4e-3 on a CPU as well."""
UNMIXED = "cifar10/fc2/untrained/honest/fedsgd+victims=1+batch_size={}/none/{}"
LEAST_DISTANCE = 1e-8
"""Half of CPL's threshold, so that a search can stop at the truth. Where client and attack have the
same kernels, it is 5e-12 or less; TF32 has 1e-7 or more."""
SLOPE_ERROR = 1e-4
"""A CPU in single precision is off by 5e-6 at most, with operands rounded to TF32 by 4e-4."""
FEWER_CONVERGED = 0.8
WORSE = 3.0
WITHIN = 0.2
SMALL_SPEEDS = [(LENET, 2, (1, 2)), (RESNET, 1, (1, 2))]
STUDIES = {
    "cpl": ("attacks", "cpl", (5, 15), 40),
    "agic": ("gradients", "agic", (20, 60), 80),
    "cpa": ("dense", "cpa", (100, 300), 30),
    "mkor": ("photographs", "invertgrad", (1, 3), 60),
    "rog": ("attacks", "rog", (5, 15), 50),
}
"""Grid, attack, two budgets of iterations that are timed, and the limit of the step in seconds.
MKOR's own attack uses no GPU; its study's largest that does is InvertGrad on VGG-16."""


@step(part=1, expected=5, limit=20)
def card(bench: Bench) -> Iterator[Finding]:
    """Rates of the card, which all other times depend on."""
    size = 8192 if bench.gpu else 128
    values = torch.empty(size * size, device=bench.device).normal_()
    target, square = torch.empty_like(values), values.view(size, size)
    copied = 8 * values.numel() / bench.seconds(lambda: target.copy_(values), 5) / 1e12
    rates = {"copies, TB/s": copied}
    work = 2 * size**3 / 1e12

    def rate(factor: torch.Tensor) -> float:
        return work / bench.seconds(lambda: factor @ factor, 5)

    rates["float32, TFLOP/s"] = rate(square)
    with tf32():
        rates["TF32"] = rate(square)
    rates["bfloat16"] = rate(square.bfloat16())
    text = ", ".join(f"{name} {value:.3g}" for name, value in rates.items())
    yield Finding("rates", None, text, "an H100: 2.6 to 3, 50, 400, 750; less means a shared card")


@step(part=1, expected=10, limit=40)
def precision(bench: Bench) -> Iterator[Finding]:
    """Distance at the truth, and the gradient elsewhere against double precision on the CPU."""
    for path in PRECISION[:2] if bench.small else PRECISION:
        cell = cell_of(path)
        seen, truth = observe(cell)
        far = torch.rand(truth.flatten(1).shape, generator=torch.Generator().manual_seed(1))
        with differentiable_kernels(seen.model):
            exact = problem_of(cell, placed(seen, CPU, torch.float64)).evaluate(far.double())
            problem = problem_of(cell, placed(seen, bench.device))
            for name, block in (("gleak's flags", nullcontext), ("TF32", tf32)):
                with block():
                    least = problem.evaluate(truth.flatten(1).to(bench.device)).distance
                    slope = problem.evaluate(far.to(bench.device)).gradient.double().cpu()
                nearest = least.abs().max().item()
                error = ((slope - exact.gradient).norm() / exact.gradient.norm()).item()
                squared = cell.attack.parts().distance.name == "l2"
                good = error <= SLOPE_ERROR and (nearest <= LEAST_DISTANCE or not squared)
                yield Finding(
                    f"{cell.model} of {cell.attack.name}, {name}",
                    None if block is tf32 else good,
                    f"distance at the truth {nearest:.1e}, gradient off by {error:.1e}",
                    (f"distance <= {LEAST_DISTANCE:.0e}, half of CPL's threshold; " * squared)
                    + f"gradient <= {SLOPE_ERROR:.0e}: a CPU has 5e-6, TF32 4e-4 or more",
                )


def cpl_to_the_end(bench: Bench) -> tuple[Cell, Observation, torch.Tensor]:
    cell = cell_of(LENET.format(2 if bench.small else 24))
    cell = with_fields(cell, "attack", iterations=3 if bench.small else 100)
    return (cell, *observe(cell))


@step(part=1, expected=45, limit=120)
def equality(bench: Bench) -> Iterator[Finding]:
    """CPL on LeNet to the end, on this device and on the CPU."""
    cell, seen, truth = cpl_to_the_end(bench)
    theirs, ours = (
        reconstruct(cell.attack, placed(seen, device), 0) for device in (CPU, bench.device)
    )
    share, expected = ours.converged.mean(), theirs.converged.mean()
    yield Finding(
        "victims that converge",
        bool(share >= FEWER_CONVERGED * expected),
        f"{share:.0%}, on the CPU {expected:.0%}",
        f">= {FEWER_CONVERGED:.0%} of the CPU's: rounding sends single searches other ways",
    )
    error, usual = (
        float(np.median(((one.inputs - truth.numpy()) ** 2).reshape(len(truth), -1).mean(1)))
        for one in (ours, theirs)
    )
    yield Finding(
        "median squared error",
        error <= WORSE * usual + 1e-4,
        f"{error:.1e}, on the CPU {usual:.1e}",
        f"<= {WORSE:g} times the CPU's, or 1e-4, which nobody sees; with TF32 10 to 30 times",
    )


def same_bits(one: Reconstruction, other: Reconstruction) -> bool:
    names = ("inputs", "labels", "objective", "evaluations", "trace_objective", "snapshots")
    return all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=name == "objective")
        for name in names
    )


@step(part=1, expected=10, limit=40)
def repeat(bench: Bench) -> Iterator[Finding]:
    """Two runs of a search have the same bits."""
    for path in (LENET.format(4), RESNET.format(4), ROG)[:: 2 if bench.small else 1]:
        cell = with_fields(cell_of(path), "attack", iterations=2 if bench.small else 20)
        seen, _ = observe(cell)
        one, other = (reconstruct(cell.attack, placed(seen, bench.device), 0) for _ in range(2))
        gap = float(np.abs(one.inputs - other.inputs).max())
        yield Finding(
            f"{cell.model} by {cell.attack.name}",
            same_bits(one, other),
            f"samples differ by {gap:.1e} at most",
            "0: resumption promises equal bits, and results depend on inputs and seeds alone",
        )


@step(part=1, expected=15, limit=50)
def graphs(bench: Bench) -> Iterator[Finding]:
    """Steps of searches are captured as CUDA graphs, and have the same bits as without."""
    cells = [(path, 30) for path in (LENET.format(4), RESNET.format(4), ROG)]
    cells.append((UNMIXED.format(4, "cpa"), 100))
    for path, iterations in cells[:: 3 if bench.small else 1]:
        cell = with_fields(cell_of(path), "attack", iterations=2 if bench.small else iterations)
        seen, _ = observe(cell)
        with logged(logging.INFO) as told:
            found = reconstruct(cell.attack, placed(seen, bench.device), 0)
        with without_graphs():
            expected = reconstruct(cell.attack, placed(seen, bench.device), 0)
        refused = [line for line in told if "no CUDA graph" in line]
        equal = same_bits(found, expected)
        yield Finding(
            f"{cell.model} by {cell.attack.name}",
            equal and not refused if bench.gpu else None,
            "; ".join(refused) or f"{'the same' if equal else 'other'} bits",
            "captured, and the same bits: a graph repeats the kernels of a step",
        )


@step(part=1, expected=10, limit=40)
def resume(bench: Bench) -> Iterator[Finding]:
    """A search that SIGTERM ended half way and that is resumed has the same bits."""
    cell, seen, _ = cpl_to_the_end(bench)

    def run(journal: Watched) -> Reconstruction:
        with journal:
            given = replace(placed(seen, bench.device), journal=journal)
            return reconstruct(cell.attack, given, 0)

    path = bench.folder / "gpu_check_checkpoint.h5"
    path.unlink(missing_ok=True)
    whole = Watched()
    expected = run(whole)
    try:
        run(Watched(path, stop_at=whole.looks // 2))
        raise GleakError(f"the search did not stop at look {whole.looks // 2} of {whole.looks}")
    except StoppedError:
        rest = Watched(path)
        found = run(rest)
    yield Finding(
        "stopped half way",
        same_bits(found, expected) and rest.looks < 0.75 * whole.looks,
        f"{rest.looks} of {whole.looks} steps after resumption, "
        f"samples differ by {np.abs(found.inputs - expected.inputs).max():.1e}",
        "half of the steps and 0: a checkpoint holds all that the next step depends on",
    )


@step(part=1, expected=20, limit=60)
def unmixing(bench: Bench) -> Iterator[Finding]:
    """Attacks by unmixing find on this device what they find on the CPU."""
    samples, rounds = (4, 2) if bench.small else (64, 8)
    for attack in ("cpa+iterations=500", "cpa_edges", f"spear+rounds={rounds}"):
        cell = cell_of(UNMIXED.format(samples, attack))
        seen, _ = observe(cell)
        results, spent = [], []
        for device in (CPU, bench.device):
            began = bench.clock()
            results.append(reconstruct(cell.attack, placed(seen, device), 0))
            spent.append(bench.clock() - began)
        theirs, ours = results
        gap = float(np.median(np.abs(ours.inputs - theirs.inputs)))
        yield Finding(
            f"{cell.attack.name}, batches of {samples}",
            gap <= PIXELS and bool((ours.converged == theirs.converged).all()),
            f"median difference of pixels {gap:.1e}; converged {ours.converged.mean():.0%}, on the "
            f"CPU {theirs.converged.mean():.0%}; {spent[1]:.2g} s a victim, CPU {spent[0]:.2g} s",
            f"<= {PIXELS:g} (two failures differ by 0.2), and the same victims converge",
        )


@step(part=1, expected=5, limit=10)
def refusal(bench: Bench) -> Iterator[Finding]:
    """A step that cannot be captured is run, and leaves the GPU as it was."""
    values = torch.zeros(8, device=bench.device)

    def increment() -> None:
        values.add_(1)

    def waiting() -> None:
        increment()
        values.sum().item()

    call = GraphedCall(graphs_on(bench.device))
    for _ in range(9):
        call(waiting)
    yield Finding(
        "declined before it is captured",
        call.replay is None and bool((values == 9).all()),
        f"run {values[0]:.0f} times in 9 calls",
        "9: it reads a value, which no graph can",
    )
    if not bench.gpu:
        return
    graphs = CUDAGraphs(bench.device)
    try:
        graphs.capture(waiting)
        told = "no error"
    except RuntimeError as error:
        told = str(error).partition("\n")[0]
    CUDAGraphs.failed = False
    torch.cuda.empty_cache()
    graphs.capture(increment)()
    yield Finding(
        "a capture after one that failed",
        told != "no error" and bool((values == 10).all()),
        f"{told}; then {values[0]:.0f}",
        "an error, then 10: searches go on after it, and free memory",
    )


@step(part=2, expected=15, limit=80)
def memory(bench: Bench) -> Iterator[Finding]:
    """Out of memory: fewer victims at once, then micro-batches, then an error in words."""
    path = LENET.replace("cpl", "invertgrad+labels=known") if bench.small else RESNET
    several, batch = cell_of(path.format(64)), cell_of(path.format("1+batch_size=64"))
    methods: dict[str, Any] = {}

    def attack(
        cell: Cell, capacity: int | None = None, known: dict[str, Any] = methods
    ) -> tuple[Reconstruction | None, int, str]:
        observation = bench.prepared(cell)
        with logged() as told, bench.memory(capacity) as peak:
            result, _ = bench.attack_once(cell, observation, known)
            return result, peak(), "; ".join(told)

    def peak_of(cell: Cell, **client: int) -> int:
        return attack(with_fields(cell, "client", **client))[1]

    attack(several)  # chooses the method, which takes more memory than a victim
    one, eight, sixteen = (peak_of(several, victims=number) for number in (1, 8, 16))
    quarter, whole = (peak_of(batch, batch_size=number) for number in (16, 64))
    twenty = eight + 12 * (sixteen - eight) // 8 + 44 * update_bytes(several) // 64
    for name, cell, capacity, sign in (
        ("64 updates, and the memory to search 20", several, twenty, "victims"),
        ("a batch of 64 in the memory of 40", batch, (quarter + whole) // 2, "micro-batches"),
    ):
        result, used, told = attack(cell, capacity)
        complete = result is None or bool(np.isfinite(result.inputs).all())
        divided = sign in told or (not bench.gpu and cell is several)  # if it estimates well
        yield Finding(
            name,
            complete and divided and used <= capacity,
            f"{capacity / 1e6:.1f} MB, {used / 1e6:.1f} used; {told or 'nothing was divided'}",
            "a result, by fewer victims or samples at a time: a job must not end for this",
        )
    for name, known in (("for one sample", methods), ("for the check of methods", {})):
        try:
            attack(with_fields(several, "client", victims=1), one // 2, known)
            named, text = False, "no error"
        except Exception as error:  # any other kind than gleak's is what fails here
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            named = isinstance(error, GleakError) and "memory" in text
        yield Finding(
            f"no room {name}",
            named,
            f"{one / 2e6:.1f} MB: {text[:160]}",
            "GleakError that speaks of memory: users must learn what is short",
        )


@step(part=2, expected=5, limit=20)
def cache(bench: Bench) -> Iterator[Finding]:
    """Memory that torch keeps after a tensor was freed counts as free."""
    before = free_memory(bench.device) or 0
    held = torch.empty(10**9 if bench.gpu else 1, dtype=torch.uint8, device=bench.device)
    del held
    after = free_memory(bench.device) or 0
    yield Finding(
        "after 1 GB was freed",
        after > before - 10**8 if bench.gpu else None,
        f"{before / 1e9:.2f} GB free before, {after / 1e9:.2f} GB after",
        "as before, to 0.1 GB: else later searches of a job get smaller chunks",
    )


@step(part=2, expected=15, limit=80)
def chunks(bench: Bench) -> Iterator[Finding]:
    """Memory of a victim, against the virtual GPU by which victims are divided."""
    virtual = Bench(CPU, bench.small, bench.folder)
    cases = (("cpl", (100, 200)), ("agic", (4, 8)), ("rog", (1, 2)))
    for study, sizes in cases[:1] if bench.small else cases:
        cell = study_cell(study, *STUDIES[study][:2], bench.scale)
        measured, expected = (victim_bytes(one, cell, *sizes) for one in (bench, virtual))
        yield Finding(
            f"{study}: {cell.model}, batch {cell.client.batch_size}",
            abs(measured / expected - 1) <= WITHIN,
            f"{measured / 1e6:.1f} MB a victim, {expected / 1e6:.1f} by the virtual GPU",
            f"within {WITHIN:.0%}: more costs attempts that fail, fewer leaves the GPU idle",
        )


def victim_bytes(bench: Bench, cell: Cell, few: int, many: int) -> float:
    """Return the memory that each further victim takes in one iteration."""
    methods: dict[str, Any] = {}

    def peak_of(victims: int) -> int:
        part = with_fields(cell, "client", victims=victims, repeats=1)
        observation = bench.prepared(part)
        with bench.memory() as peak:
            bench.attack_once(part, observation, methods)
            return peak()

    peak_of(few)  # chooses the method, which takes more memory than a victim
    return (peak_of(many) - peak_of(few)) / (many - few)


@step(part=2, expected=20, limit=80)
def launches(bench: Bench) -> Iterator[Finding]:
    """Launches of an evaluation, and times that the host waits in an iteration of CPL."""
    rog = cell_of(ROG) if bench.small else study_cell("rog", *STUDIES["rog"][:2], "paper")
    lenet, resnet, searched = (2, 1, 2) if bench.small else (64, 16, 16)
    for cell, most in (
        (cell_of(LENET.format(lenet)), 300),
        (cell_of(RESNET.format(resnet)), 1200),
        (rog, 2000),
    ):
        seen = placed(observe(cell, bench.device)[0], bench.device)
        with differentiable_kernels(seen.model):
            problem = problem_of(cell, seen)
            points = torch.rand(seen.victims, problem.unknowns).to(bench.device)
            problem.evaluate(points)
            count = bench.launches(partial(problem.evaluate, points))
        yield Finding(
            f"an evaluation, {cell.model}, {seen.victims} x {cell.client.batch_size}",
            0 < count <= most if bench.gpu else None,
            f"{count} {'launches' if bench.gpu else 'operations of the CPU'}",
            f"<= {most}: a launch costs the host about 5 us, for which the GPU waits",
        )
    cell = cell_of(LENET.format(searched))
    seen = placed(observe(cell)[0], bench.device)
    budgets = (1, 2) if bench.small else (100, 200)
    each = bench.per_iteration(cell, seen, budgets, bench.synchronisations)
    yield Finding(
        f"an iteration of CPL, {searched} victims",
        each <= 1 if bench.gpu else None,
        f"{each:.3g} {'synchronisations' if bench.gpu else 'values read'}",
        "<= 1 in 20 evaluations: each empties the queue of the GPU",
    )


@step(part=2, expected=180, limit=300)
def speed(bench: Bench) -> Iterator[Finding]:
    """Time of a victim's evaluation against plain autograd here, with and without CUDA graphs."""
    cases = [(LENET, n, (10, 30)) for n in (1, 16, 64, 256, 1024)]
    cases += [(RESNET, n, (50, 150)) for n in (1, 16, 64, 256)]
    for path, number, budgets in SMALL_SPEEDS if bench.small else cases:
        cell = cell_of(path.format(number))
        seen = placed(observe(cell)[0], bench.device)
        optimizer = cell.attack.parts().optimizer
        plain = seconds_of_matching(
            placed(seen, bench.device).model,
            [value[0, 0] for value in seen.update.values()],
            seen.input_shape,
            optimizer=optimizer.name,
            distance=cell.attack.parts().distance.name,
            iterations=5 if bench.small else 50,
            clock=bench.clock,
        )
        per = optimizer.evaluations_per_iteration * number
        each = bench.per_iteration(cell, seen, budgets, bench.seconds) / per
        with without_graphs():
            without = bench.per_iteration(cell, seen, budgets, bench.seconds) / per
        yield Finding(
            f"{cell.model} by {cell.attack.name}, {number} victims",
            each < plain if bench.gpu and number > 1 else None,
            f"{1e3 * each:.3g} ms a victim and evaluation, "
            f"{1e3 * without:.3g} without graphs, "
            f"{1e3 * plain:.3g} by plain autograd (ratio {each / plain:.2g})",
            "several victims at once: less than one after the other by plain autograd",
        )


def paper_cell(bench: Bench, name: str) -> Iterator[Finding]:
    """One cell of a study at the scale of its paper, from some of its iterations."""
    grid, attack, budgets, _ = STUDIES[name]
    cell = study_cell(name, grid, attack, bench.scale)
    victims = 1 if bench.small or name == "mkor" else cell.client.victims
    samples = min(cell.client.batch_size, 4) if bench.small else cell.client.batch_size
    timed = with_fields(cell, "client", victims=victims, repeats=1, batch_size=samples)
    seen = placed(observe(timed, bench.device)[0], bench.device)
    with bench.memory() if bench.gpu else nullcontext(lambda: 0) as peak:
        each = bench.per_iteration(timed, seen, (1, 2) if bench.small else budgets, bench.seconds)
        used = f"{peak() / 1e9:.2f} GB"
    whole = each * cell.attack.iterations * cell.client.victims / victims
    yield Finding(
        str(cell),
        None,
        f"{1e3 * each:.3g} ms an iteration of {victims} victims, {used}; "
        f"the whole cell {whole / 60:.3g} min",
        "an estimate from the difference of two budgets; nothing to compare with yet",
    )


for name, (*_, limit) in STUDIES.items():
    STEPS[f"paper_{name}"] = Step(partial(paper_cell, name=name), 3, limit // 2, limit)
