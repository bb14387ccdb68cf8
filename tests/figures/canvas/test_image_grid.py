"""Grids of images."""

from __future__ import annotations

import numpy as np

from gleak.figures.canvas.image_grid import Tile, TileRow, draw_grid


def test_long_texts_below_images_are_wrapped() -> None:
    pixels = np.zeros((1, 4, 4))
    long, short = Tile(pixels, below="SSIM, one window 0.9299"), Tile(pixels, below="MSE 0.1")
    rows = [TileRow("a row", [long, long, short])]
    figure = draw_grid(rows)
    texts = [axes.texts[0] for axes in figure.axes[1:]]
    assert [text.get_text() for text in texts] == ["SSIM, one window\n0.9299", "MSE 0.1"]
    first, second, _ = (axes.texts[0].get_window_extent() for axes in figure.axes)
    assert first.x1 < second.x0


def test_lines_below_an_image_take_their_height() -> None:
    one, two = (
        draw_grid([TileRow("", [Tile(np.zeros((1, 4, 4)), below=text)])]).get_figheight()
        for text in ("MSE 0.1", "SSIM, one window 0.9299")
    )
    assert two > one
