"""A bounded run of the fuzzer over the reader of artifacts: `make fuzz`.

Inputs are read by processes of a few thousand each, so that one which HDF5 does not survive ends
its process, is kept, and the run goes on.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from math import ceil
from pathlib import Path

import numpy as np
from seeds import write_all

SHARES = {"raw": 0.4, "granted": 0.45, "forged": 0.15}
"""Of the inputs, by mode; see `target.Target`. Edits take the longest."""
COUNTS = ("read", "accepted", "refused", "wrong")
BATCH = 5000
HANG_SECONDS = 5
LONGEST_BATCH = 600
LONGEST_INPUT = {"raw": 2**16, "granted": 2**16, "forged": 2**8}


def fuzz(mode: str, inputs: int, folder: Path, seed: int) -> None:
    """Have inputs of a mode read, and say what came of them."""
    corpus = folder / f"corpus-{mode}"
    corpus.mkdir()
    if mode != "forged":
        write_all(corpus)
    counts = np.memmap(folder / f"{mode}.counts", np.int64, "w+", shape=len(COUNTS))
    begun, lost = time.monotonic(), 0
    while counts[0] < inputs:
        left = min(BATCH, inputs - int(counts[0]))
        before = int(counts[0])
        lost += not survives(mode, left, folder, corpus, seed)
        seed += 1
        if counts[0] == before:
            raise SystemExit(f"{mode}: a process read nothing; see {folder}/{mode}-{seed - 1}.log")
    told = ", ".join(f"{count} {name}" for name, count in zip(COUNTS, counts, strict=True))
    print(f"{mode}: {told}; {lost} processes lost; {time.monotonic() - begun:.0f} s", flush=True)


def survives(mode: str, inputs: int, folder: Path, corpus: Path, seed: int) -> bool:
    """Whether a process reads its inputs to the end; the one that it does not survive is kept."""
    flags = {
        "runs": inputs,
        "seed": seed,
        "max_len": LONGEST_INPUT[mode],
        "mutate_depth": 1 if mode == "granted" else 5,
        "timeout": HANG_SECONDS,
        "artifact_prefix": f"{folder}/findings/{mode}-",
    }
    command = [sys.executable, str(Path(__file__).with_name("target.py")), mode, str(folder)]
    command += [*(f"-{name}={value}" for name, value in flags.items()), str(corpus)]
    with (folder / f"{mode}-{seed}.log").open("wb") as log:
        try:
            status = subprocess.run(command, stdout=log, stderr=log, timeout=LONGEST_BATCH)
        except subprocess.TimeoutExpired:
            ended = "stuck"
        else:
            ended = str(status.returncode)
    if ended == "0":
        return True
    for name in ("input", "input.h5"):
        shutil.copy(folder / name, folder / "findings" / f"{mode}-{seed}-{ended}-{name}")
    return False


def main() -> int:
    """Run all modes; fails if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="over all modes")
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"), help="made anew")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    (given.folder / "findings").mkdir(parents=True)
    for mode, share in SHARES.items():
        fuzz(mode, ceil(share * given.inputs), given.folder, given.seed)
    found = sorted(path.name for path in (given.folder / "findings").iterdir())
    print("found:", ", ".join(found) or "nothing")
    return len(found) > 0


if __name__ == "__main__":
    sys.exit(main())
