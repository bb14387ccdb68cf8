"""The examples of assessments, followed to the letter from an empty folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from scipy.stats import binomtest

from tests.guide import BLOCK, ROOT, follow

EXAMPLES = {"assess-images": "hospital", "assess-records": "registry"}
"""Page -> the name of its deployment."""
DEFENCE = re.compile(r"^\| `(\S+)` \| (\d+) of (\d+) \[(\d+)%, (\d+)%\] \|", re.MULTILINE)
MINUTES = re.compile(r"about \S+ minutes")


class Stated(NamedTuple):
    """Clients above the threshold, as a page states them, with the interval of their share."""

    above: int
    clients: int
    low: float
    high: float

    def agrees(self, above: int, clients: int) -> bool:
        """Return whether a run found as many clients.

        Kernels of other processors round differently, after which a search may end elsewhere: one
        client more or less, or a share within the interval that the page states.
        """
        near = abs(above - self.above) <= 1 or self.low <= above / clients <= self.high
        return clients == self.clients and near


def page_of(name: str) -> str:
    return (ROOT / f"docs/guide/{name}.md").read_text(encoding="utf-8")


def stated_in(page: str) -> dict[str, Stated]:
    """What a page says of each defence."""
    return {
        text: Stated(int(above), int(clients), int(low) / 100, int(high) / 100)
        for text, above, clients, low, high in DEFENCE.findall(page)
    }


def lines_of(text: str) -> list[str]:
    """Its lines without estimated times, which depend on the machine."""
    return MINUTES.sub("about N minutes", text).splitlines()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_states_the_intervals_of_its_counts(name: str) -> None:
    found = stated_in(page_of(name))
    assert len(found) == 4
    for each in found.values():
        exact = binomtest(each.above, each.clients).proportion_ci(0.95, method="exact")
        assert (each.low, each.high) == (round(exact.low, 2), round(exact.high, 2))


@pytest.mark.parametrize(
    ("stated", "above", "agrees"),
    [
        (Stated(0, 10, 0, 0.31), [0, 1, 2, 3], True),
        (Stated(0, 10, 0, 0.31), [4, 7, 10], False),
        (Stated(10, 10, 0.69, 1), [6, 5, 0], False),
        (Stated(1, 5, 0.01, 0.72), [0, 1, 2, 3], True),
        (Stated(1, 5, 0.01, 0.72), [4, 5], False),
    ],
)
def test_a_borderline_client_is_no_change_but_several_are(
    stated: Stated, above: list[int], agrees: bool
) -> None:
    assert [stated.agrees(count, stated.clients) for count in above] == [agrees] * len(above)
    assert not stated.agrees(stated.above, stated.clients + 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "deployment"), EXAMPLES.items())
def test_an_example_gives_what_its_page_says(tmp_path: Path, name: str, deployment: str) -> None:
    page = page_of(name)
    printed = lines_of(follow(tmp_path, page, modules=ROOT))
    shown = [
        line for kind, text in BLOCK.findall(page) if kind == "text" for line in lines_of(text)
    ]
    assert shown
    assert [line for line in shown if line not in printed] == []
    report = json.loads((tmp_path / f"{deployment}-report/report.json").read_text())
    found = {
        each["defense"]: (row["above"], row["clients"])
        for each in report["defenses"]
        for row in each["exposures"]
    }
    stated = stated_in(page)
    assert list(stated) == list(found)
    differ = {text: found[text] for text in found if not stated[text].agrees(*found[text])}
    assert differ == {}
