"""Commands on single files: ``inspect``, ``audit`` and ``weights``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import get_args

from gleak.artifacts.dataset import Dataset
from gleak.artifacts.inspect import describe_file, save_image
from gleak.artifacts.model import Model
from gleak.cli.common import EXIT_FINDING
from gleak.core.errors import SpecError
from gleak.metrics.audits.alarms import AuditReport, run_audits
from gleak.metrics.audits.base import Broadcast
from gleak.metrics.audits.reference import read_reference
from gleak.runtime.hub_weights import address, download, expected_digests
from gleak.runtime.perceptual import BACKBONES, SQUEEZE, Net


def add_inspect(command: ArgumentParser) -> None:
    text = "any .h5 file of a run, or a table of scores"
    command.add_argument("file", type=Path, metavar="FILE", help=text)
    command.add_argument("--image", type=int, metavar="N", help="save the image of sample N")
    text = "output file; default ./<stem>-<N>.png"
    command.add_argument("--output", type=Path, metavar="PNG", help=text)


def run_inspect(arguments: Namespace) -> int:
    if arguments.file.suffix not in (".h5", ".csv"):
        raise SpecError(f"{arguments.file}: neither an .h5 file nor a table of scores (.csv)")
    if arguments.image is not None:
        output = arguments.output or Path(f"{arguments.file.stem}-{arguments.image}.png")
        print(save_image(arguments.file, arguments.image, output))
    elif arguments.output is not None:
        raise SpecError("--output needs the number of an image; add --image N")
    elif arguments.file.suffix == ".csv":
        from gleak.cli.score_report import describe_scores  # imports pandas

        print(describe_scores([arguments.file]))
    else:
        print(describe_file(arguments.file))
    return 0


def add_audit(command: ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="parameters.h5 or model.h5")
    text = "dataset.h5 with samples for the audits"
    command.add_argument("--data", type=Path, metavar="DATASET", help=text)
    text = "model.h5, or architecture, that the parameters should be of; see gleak list model"
    command.add_argument("--reference", metavar="FILE|ARCHITECTURE", help=text)
    command.add_argument("--json", action="store_true", help="print the report as JSON")


def run_audit(arguments: Namespace) -> int:
    report = audit_file(arguments.file, arguments.data, arguments.reference)
    print(report.to_json() if arguments.json else report)
    return EXIT_FINDING if report.alarms else 0


def audit_file(parameters: Path, dataset: Path | None, reference: str | None = None) -> AuditReport:
    """Run every audit with its defaults on a ``parameters.h5`` or ``model.h5``.

    Without a dataset, audits that need samples are not available, and torch is not imported unless
    the reference is an architecture.
    """
    samples = None if dataset is None else Dataset.read(dataset)
    model = Model.read(parameters)
    expected = None if reference is None else read_reference(reference, model)
    return run_audits(Broadcast(model, samples, reference=expected))


def add_weights(command: ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group()
    text = "name of a file that torchvision publishes"
    which.add_argument("file", nargs="?", metavar="FILE", help=text)
    text = "network whose features LPIPS compares: squeeze (default, 5 MB), alex (244 MB) or vgg "
    text += "(553 MB)"
    which.add_argument("--net", choices=get_args(Net), default=SQUEEZE, help=text)


def run_weights(arguments: Namespace) -> int:
    name = arguments.file or BACKBONES[arguments.net].file
    digest = next(iter(expected_digests(name)), "unknown")
    print(f"{address(name)}, sha256 {digest}", flush=True)
    print(download(name))
    return 0
