"""Places of figures whose x are groups with one slot for each colour, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from gleak.figures.panels import Colour
from gleak.figures.style import PANEL

TOGETHER = 0.85  # share of a place on x that its slots take
SLOT, LETTER = 0.2, 0.062  # inches, at least, of a slot and of a letter below the ticks


@dataclass(frozen=True)
class Slots:
    """Where bars or boxes stand: groups along x, colours side by side in each.

    Args:
        places: x -> the middle of its group.
        colours: hue -> its colour, from left to right.
        share: of a slot that its bar takes; the rest is the marker's, at its right.
    """

    places: dict[float | str, float]
    colours: dict[str, Colour]
    share: float

    @property
    def width(self) -> float:
        """Of a bar."""
        return self.share * TOGETHER / len(self.colours)

    @property
    def rest(self) -> float:
        """Of what a bar leaves of its slot."""
        return (1 - self.share) * TOGETHER / len(self.colours)

    def bar(self, x: float | str, hue: str) -> float:
        """The middle of a bar."""
        return self._left(x, hue) + self.width / 2

    def marker(self, x: float | str, hue: str) -> float:
        """The middle of what a bar leaves of its slot."""
        return self._left(x, hue) + self.width + self.rest / 2

    def inches(self, ticks: list[str]) -> float:
        """The width of a panel in which neither bars nor labels touch each other."""
        longest = max(len(line) for tick in ticks for line in tick.splitlines())
        group = max(SLOT * len(self.colours) / TOGETHER, LETTER * longest)
        return max(PANEL[0], group * len(ticks))

    def _left(self, x: float | str, hue: str) -> float:
        number = list(self.colours).index(hue)
        return self.places[x] + TOGETHER * (number / len(self.colours) - 1 / 2)
