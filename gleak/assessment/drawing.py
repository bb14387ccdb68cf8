"""Pictures of a report, as data URIs, so that the page needs no other file."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO

import numpy as np
from matplotlib.figure import Figure

from gleak.artifacts.pictures import enlarged, picture
from gleak.figures.canvas.style import VOLATILE


def sample_uri(sample: np.ndarray) -> str:
    """Return an image of Shape (C, H, W), enlarged, as a PNG."""
    buffer = BytesIO()
    enlarged(picture(sample)).save(buffer, format="PNG")
    return data_uri("image/png", buffer.getvalue())


def figure_uri(figure: Figure) -> str:
    """Return a figure as an SVG, equal for equal figures."""
    buffer = BytesIO()
    figure.savefig(buffer, format="svg", metadata=VOLATILE["svg"])
    return data_uri("image/svg+xml", buffer.getvalue())


def data_uri(kind: str, content: bytes) -> str:
    """Return the address of a file that is part of the page."""
    return f"data:{kind};base64,{b64encode(content).decode()}"
