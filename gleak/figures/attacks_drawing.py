"""Drawing of tables of attacks."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gleak.core.numbers import DASH
from gleak.figures.attacks import ATTACK, Attacks
from gleak.figures.style import save_numbers
from gleak.figures.table_forms import write_forms


def draw_attacks(figure: Attacks, stem: Path) -> None:
    """Write a table of attacks in all its forms; in the CSV texts are without labels."""
    table = [{key: ", ".join(texts) for key, texts in row.items()} for row in figure.facts]
    save_numbers(pd.DataFrame(table), stem)
    write_forms(lay_out(figure), f"{DASH} none.", stem, align="left")


def lay_out(figure: Attacks) -> pd.DataFrame:
    """The table as it is printed.

    Returns:
        Index: the attacks; columns: what is told of them.
    """
    label, facts = figure.label, figure.facts
    told = [key for key in facts[0] if key != ATTACK]
    return pd.DataFrame(
        [[", ".join(dict.fromkeys(map(label, row[key]))) or DASH for key in told] for row in facts],
        index=pd.MultiIndex.from_tuples(
            [(label(text),) for text in figure.attacks], names=[label(ATTACK)]
        ),
        columns=pd.MultiIndex.from_tuples([(label(key),) for key in told]),
    )
