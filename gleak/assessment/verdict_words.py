"""Verdicts of an assessment and kinds of findings, in words."""

from __future__ import annotations

from typing import Literal

Verdict = Literal["exposed", "partly exposed", "inconclusive", "not found", "not measured"]
MEANINGS: dict[Verdict, str] = {
    "exposed": "at least half of the clients are above the threshold",
    "partly exposed": "some clients are above the threshold, but less than half",
    "inconclusive": "nothing was found, and this assessment is too weak for that to say anything",
    "not found": "no client is above a threshold; other attacks, or a larger budget, may find more",
    "not measured": "there is nothing to compare with",
}
CONTRADICTED = "the captured updates are not those of the training that is described"
HEADLINES: dict[Verdict, str] = {
    "exposed": "Exposed",
    "partly exposed": "Partly exposed",
    "inconclusive": "Cannot tell",
    "not found": "Not found by these attacks at this budget",
    "not measured": "Not measured",
}
"""Each verdict as a heading; none says that nothing can be found."""
RATES: dict[Verdict, str] = {
    "exposed": "a threshold on who took part, on identified samples or on epsilon is exceeded",
    "inconclusive": "whether a threshold on who took part, on identified samples or on epsilon is "
    "exceeded cannot be told",
}
"""Meanings of a verdict that is not that on recovered samples."""
TITLES: dict[Verdict, str] = {
    "exposed": "The server can recover samples of its clients",
    "partly exposed": "The server can recover samples of some of its clients",
    "inconclusive": "Whether the server can recover samples of its clients cannot be told",
    "not found": "These attacks, at this budget, did not recover samples of the clients",
    "not measured": "Nothing was measured",
}
SAMPLES, LABELS, MEMBERS = "samples", "labels", "members"
IDENTIFIED, EPSILON = "identified", "epsilon"
"""Kinds of findings."""
ALSO = {LABELS: "name their labels", MEMBERS: "tell which records took part"}
"""What a server can do besides, by the kind of the finding that is exposed."""
ORDER: tuple[Verdict, ...] = (
    "not measured",
    "not found",
    "inconclusive",
    "partly exposed",
    "exposed",
)
"""Verdicts on several questions, the one that stands for all of them last."""
