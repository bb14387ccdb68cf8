"""Needs of a verdict besides victims, in place of their number, and the same in words."""

from __future__ import annotations

from gleak.figures.leaks import UNDER_ATTACKED

NO_NUMBER = "none"
"""In place of the number of victims that would do: the estimate is at the end of the range."""
STRONGER = "stronger attacks"
"""In place of the number of victims: no compared attack is above blind."""
CONTROL = "a weaker strength that leaks"
"""In place of the number of victims: without it a defence is not said to hide."""
OWN_PROTOCOL = "the paper's protocol"
"""In place of the number of victims: what the paper claims is about something else."""
LONGER = "longer searches"
"""In place of the number of victims: a cost is compared that the budget decides."""
MORE_SAMPLES = "more samples"
"""In place of the number of victims: these share the samples of the split, as more would."""
BEYOND_CHANCE = "more than chance"
"""In place of the number of victims: what is compared may be chance."""
MOST_VICTIMS = 10_000
"""Largest number of victims that is told as what a verdict needs."""
TOLD = {
    NO_NUMBER: "no number of victims would",
    STRONGER: "no attack is above blind; stronger ones would",
    UNDER_ATTACKED: "under-attacked: the same victims leak more under a stronger defence",
    CONTROL: "a weaker strength of the same defence that is known to leak would",
    OWN_PROTOCOL: "it is about other data, another network, clients or metric in the paper",
    LONGER: "its budget ended at least half of the searches; longer ones would",
    MORE_SAMPLES: "victims share samples, as there are more of them than fit the split; a larger "
    "one would",
    BEYOND_CHANCE: "a mean is within reach of chance",
}
"""What a verdict needs -> the same in a sentence."""


def describe_needed(needed: str) -> str:
    """Return what a verdict needs, a number of victims or something else, in a sentence."""
    if needed.isdecimal() and int(needed) > MOST_VICTIMS:
        return f"no practical number of victims would (more than {MOST_VICTIMS:,})"
    return TOLD.get(needed, f"{needed} victims would")
