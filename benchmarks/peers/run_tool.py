"""Run one tool on all victims of a cell, in a process of its own.

    python benchmarks/peers/run_tool.py TOOL --peers DIR --cell DIR --parameters FILE --run DIR {}

``TOOL`` is a name of `tools.TOOLS`, or a spec of gleak's attacks with ``{NAME}`` for each searched
value. ``--run``, which may be repeated, gives an output folder and the searched values as JSON.
Writes ``reconstruction.h5`` and ``cost.json``: CPU seconds for one victim, without imports,
crafting and the work of a client, and peak memory in MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from problem import Clients, Tool, problem_of, read_observation
from tools import ANY_ORDER, TOOLS, Values

from gleak.artifacts.private import UNKNOWN
from gleak.artifacts.reconstruction import Reconstruction
from gleak.attacks.observation import Observation
from gleak.attacks.run_attack import reconstruct
from gleak.core.registry import parse


def main() -> None:
    options = parse_options()
    for folder, values in options.run:
        run(options, Path(folder), json.loads(values))


def run(options: argparse.Namespace, folder: Path, values: Values) -> None:
    """Run the tool with searched values, and write what it finds."""
    spec = None if options.tool in TOOLS else parse("attack", options.tool.format(**values))
    grants = ["labels"] if spec is None else spec.grants
    observation = read_observation(options.cell, options.parameters, grants, options.seed)
    clients = Clients(options.cell / "private.h5")
    if spec is None:
        tool = TOOLS[options.tool](options.peers, values)
        method = partial(attack_one_by_one, tool, options, clients)
    else:
        method = partial(reconstruct, spec, seed=options.seed)
    begin = time.process_time()
    found = method(observation=observation)
    seconds = (time.process_time() - begin - clients.seconds) / observation.victims
    folder.mkdir(parents=True, exist_ok=True)
    found.write(folder / "reconstruction.h5")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    cost = {"cpu_seconds": round(seconds, 3), "memory": round(memory)}
    (folder / "cost.json").write_text(json.dumps(cost))


def attack_one_by_one(
    tool: Tool, options: argparse.Namespace, clients: Clients, observation: Observation
) -> Reconstruction:
    """Give a public tool the problem of each victim, and collect its images."""
    images = []
    for victim in range(observation.victims):
        torch.manual_seed(1000 * options.seed + victim)
        problem = problem_of(observation, victim, options.iterations, clients)
        images.append(tool(problem).numpy())
    inputs, labels = np.stack(images), observation.granted["labels"].numpy()
    paired = options.tool not in ANY_ORDER
    return Reconstruction(
        spec=f"{observation.spec}/{options.tool}",
        seed=options.seed,
        inputs=inputs,
        labels=labels if paired else np.full(inputs.shape[:2], UNKNOWN),
        converged=np.ones(len(labels), dtype=bool),
        mirrored=1 - inputs,
        paired=paired,
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--cell", type=Path, required=True)
    parser.add_argument("--parameters", type=Path, required=True)
    parser.add_argument("--run", nargs=2, action="append", required=True)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
