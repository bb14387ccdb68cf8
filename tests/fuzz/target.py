"""What one process of the fuzzer does: reads what libFuzzer makes of the seeds, and keeps count.

A read gives an artifact or raises `ArtifactError`. Any other exception is noted and its input kept;
a crash, a hang or too much memory ends the process, and libFuzzer keeps the input.
"""

from __future__ import annotations

import resource
import sys
import traceback
from contextlib import suppress
from math import prod
from pathlib import Path
from random import Random

import atheris
import numpy as np

with atheris.instrument_imports(include=["gleak.artifacts"]):
    from forge import forge
    from seeds import FORMATS, write_all

    from gleak.artifacts import integrity
    from gleak.artifacts.inspect import describe_file
    from gleak.artifacts.update import Update
    from gleak.core.errors import ArtifactError, RefusedError

COUNTS = ("read", "accepted", "refused", "wrong")
MEMORY = 2**30
MOST_DECODED = 10**6


class Target:
    """Reads inputs of one mode.

    Args:
        mode: "raw" takes inputs as files; "granted" does, and takes every digest for the right
            one, as if whoever made the file had computed it; "forged" makes edits of inputs.
        folder: of the run; counts and what was found go there.
    """

    def __init__(self, mode: str, folder: Path) -> None:
        self.mode, self.findings = mode, folder / "findings"
        self.script, self.path = folder / "input", folder / "input.h5"
        self.seeds = [path.read_bytes() for path in write_all(folder / "seeds")]
        self.counts = np.memmap(folder / f"{mode}.counts", np.int64, "r+", shape=len(COUNTS))
        if mode == "granted":
            integrity._check = integrity._digest

    def __call__(self, data: bytes) -> None:
        """Read one input; the entry point that libFuzzer calls."""
        self.counts[0] += 1
        self.script.write_bytes(data)
        file = self.made_of(data)
        self.path.write_bytes(file)
        try:
            self.counts[1 + (not self.accepts(file))] += 1
        except Exception as error:
            self.counts[3] += 1
            self.keep(error, file)

    def made_of(self, data: bytes) -> bytes:
        """The file that an input stands for."""
        if self.mode != "forged":
            return data
        source = atheris.FuzzedDataProvider(data)
        return forge(self.seeds[source.ConsumeIntInRange(0, len(self.seeds) - 1)], source)

    def overwrite(self, data: bytes, largest: int, seed: int) -> bytes:
        """Put other bytes in the place of a few, and move none: HDF5 finds what it looks for."""
        random = Random(seed)
        if not random.randrange(8):
            return bytes(atheris.Mutate(data, largest))
        changed = bytearray(data if data and random.randrange(2) else random.choice(self.seeds))
        for _ in range(random.choice((1, 1, 2, 4, 8))):
            place, width = random.randrange(len(changed)), random.choice((1, 1, 2, 4, 8))
            numbers = (0, 1, 2**63, 2**64 - 1, len(changed), place, random.getrandbits(64))
            piece = random.choice(numbers).to_bytes(8, "little")[:width]
            changed[place : place + width] = piece[: len(changed) - place]
        return bytes(changed[:largest])

    def accepts(self, file: bytes) -> bool:
        """Whether the file is taken for an artifact by what reads it, whole or a part in turn."""
        cls = next((cls for name, cls in FORMATS.items() if name.encode() in file), Update)
        with suppress(ArtifactError):
            describe_file(self.path)
        try:
            artifact = cls.read(self.path, victims=(None, slice(1))[self.counts[0] % 2])
        except (ArtifactError, RefusedError):
            return False
        if isinstance(artifact, Update):
            decode_small(artifact)
        return True

    def keep(self, error: Exception, file: bytes) -> None:
        """Note an exception, once for each place it comes from, with the file that led to it."""
        frames = traceback.extract_tb(error.__traceback__)
        place = next(
            (frame for frame in reversed(frames) if "gleak/artifacts" in frame.filename), frames[-1]
        )
        name = f"{self.mode}-{type(error).__name__}-{Path(place.filename).stem}-{place.lineno}"
        if not (self.findings / f"{name}.h5").exists():
            (self.findings / f"{name}.h5").write_bytes(file)
            (self.findings / f"{name}.txt").write_text("".join(traceback.format_exception(error)))


def decode_small(update: Update) -> None:
    """What the parameters of an update stand for, where memory holds it."""
    for encoded in update.update.values():
        if prod((*encoded.leading, *encoded.weight_shape)) < MOST_DECODED:
            encoded.decode()


def limit_memory() -> None:
    """What is taken beyond `MEMORY` more than now fails."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    mode, folder, *flags = sys.argv[1:]
    target = Target(mode, Path(folder))
    limit_memory()
    mutator = {"custom_mutator": target.overwrite} if mode == "granted" else {}
    atheris.Setup([sys.argv[0], *flags], target, **mutator)
    atheris.Fuzz()
