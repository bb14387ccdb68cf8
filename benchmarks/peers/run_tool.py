"""Run one tool on all victims of a cell, in a process of its own.

    python benchmarks/peers/run_tool.py TOOL --peers DIR --cell DIR --parameters FILE --output DIR

``TOOL`` is a name of `tools.TOOLS`, or a spec of gleak's attacks. Writes ``reconstruction.h5`` and
``cost.json``: CPU seconds for one victim, without imports, and peak memory in MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from problem import problem_of, read_observation
from tools import TOOLS

from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.run_attack import reconstruct
from gleak.core.registry import parse
from gleak.observation import Observation


def main() -> None:
    options = parse_options()
    observation = read_observation(options.cell, options.parameters, options.seed)
    method = method_of(options)
    begin = time.process_time()
    found = method(observation)
    seconds = (time.process_time() - begin) / observation.victims
    options.output.mkdir(parents=True, exist_ok=True)
    found.write(options.output / "reconstruction.h5")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    cost = {"cpu_seconds": round(seconds, 3), "memory": round(memory)}
    (options.output / "cost.json").write_text(json.dumps(cost))


def method_of(options: argparse.Namespace) -> Callable[[Observation], Reconstruction]:
    """Return the function that attacks all victims of an observation."""
    if options.tool not in TOOLS:
        spec = parse("attack", options.tool)
        return lambda observation: reconstruct(spec, observation, options.seed)
    tool = TOOLS[options.tool](options.peers)

    def one_by_one(observation: Observation) -> Reconstruction:
        images = []
        for victim in range(observation.victims):
            torch.manual_seed(options.seed + victim)
            images.append(tool(problem_of(observation, victim, options.iterations)).numpy())
        labels = observation.granted["labels"].numpy()
        return Reconstruction(
            spec=f"{observation.spec}/{options.tool}",
            seed=options.seed,
            inputs=np.stack(images),
            labels=labels,
            converged=np.ones(len(labels), dtype=bool),
            mirrored=1 - np.stack(images),
            paired=True,
        )

    return one_by_one


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--cell", type=Path, required=True)
    parser.add_argument("--parameters", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
