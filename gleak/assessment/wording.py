"""Numbers and specs of a report in words."""

from __future__ import annotations

from gleak.assessment.findings import DefenseCost, Fact, Mean
from gleak.assessment.verdict_words import HEADLINES, Verdict
from gleak.core.numbers import DASH

PROVEN, STATED = ("epsilon_prv", "epsilon_rdp"), "epsilon_stated"
"""Metrics of differential privacy, the tightest first, and that of a framework's own statement."""
WEAK_EPSILON, STRONG_EPSILON = 10, 1
DESTROYED, LARGE_CHANGE = 10, 1
"""Norm of the change, relative to the update, from which it is mostly noise, and half of it."""
GLOSSARY = [
    Fact(name=name, text=text)
    for name, text in {
        "client": "one of those who train together, and keep their samples.",
        "update": "what a client sends to the server after a round: a gradient, or how its "
        "parameters changed.",
        "attack": "a method by which a server computes samples from an update.",
        "guess without the update": "the mean training sample: what anybody knows of the data. "
        "What it gives as well is no leakage.",
        "threshold": "from which value of a metric on a sample counts as recovered. It is a "
        "decision. At a structural similarity (ssim) of 0.5 to 0.6 an image may be barely "
        "recognisable, and a detail of it may show at less: look at the pictures.",
        "95% interval": "shares of all such clients that the clients of the assessment are "
        "compatible with.",
        "cannot tell": "nothing was found, but the attack, its iterations or the number of clients "
        "were too weak for that to say anything.",
        "member": "a sample that took part in an update. Whoever has a record learns that it did, "
        "such as that a person is in the study of a disease.",
        "area under the ROC curve": "probability that a member has more evidence than another "
        "candidate: 0.5 by chance, 1 if members are told for certain.",
        "canary": "a gradient made up for a test, with which a defence is run many times and "
        "without which as many times: what tells the two apart bounds epsilon from below.",
        "epsilon": "of differential privacy: how much the update can depend on one sample. Odds "
        "change at most by the factor exp(epsilon), 2.7 at 1 and 22,000 at 10.",
        "label": "the class of a sample, such as a diagnosis.",
    }.items()
]


def three_digits(value: float | None) -> str:
    """Format a number with three significant digits, or as a whole one; a dash if none."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_mean(mean: Mean, number: str = ".3g") -> str:
    """Format a mean with its interval."""
    if mean.value is None:
        return DASH
    text = format(mean.value, number)
    if mean.low is None or mean.high is None:
        return text
    return f"{text} [{mean.low:{number}}, {mean.high:{number}}]"


def format_percent(share: Mean) -> str:
    """Format a share with its interval, in per cent."""
    return format_mean(share, ".0%")


def percent_in_words(share: Mean) -> str:
    """Format a share with its interval as part of a sentence."""
    return _share_in_words(share, "; {}")


def rate_in_words(share: Mean) -> str:
    """Format a share with its interval in brackets."""
    return _share_in_words(share, " ({})")


def _share_in_words(share: Mean, interval: str) -> str:
    if share.value is None:
        return "an unknown share"
    if share.low is None or share.high is None:
        return f"{share.value:.0%}"
    ends = f"95% interval {share.low:.0%} to {share.high:.0%}"
    return f"{share.value:.0%}{interval.format(ends)}"


def ends_in_percent(share: Mean) -> str:
    """Format the interval of a share."""
    if share.low is None or share.high is None:
        return DASH
    return f"{share.low:.0%}, {share.high:.0%}"


def duration(seconds: float) -> str:
    """Format a time."""
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} minutes"


def verdict_in_words(verdict: Verdict) -> str:
    """Return a verdict for a table."""
    return HEADLINES[verdict].partition(" by ")[0].lower()


def readable(spec: str) -> str:
    """Return a spec as a reader who does not know paths writes it: ``topk (keep 0.1)``."""
    name, *fields = spec.split("+")
    if not fields:
        return name
    return f"{name} ({', '.join(field.replace('=', ' ').replace('~', ' ') for field in fields)})"


def bare_name(spec: str) -> str:
    """Return the name in a spec."""
    return spec.partition("+")[0]


def guarantee(cost: DefenseCost) -> str:
    """Return what a defence guarantees against any attack, in words, and what is only stated."""
    proven = next((cost.guarantees[name] for name in PROVEN if name in cost.guarantees), None)
    text = "nothing is guaranteed"
    if proven is not None:
        text = f"epsilon {three_digits(proven)}: {_strength(proven)}"
    if STATED in cost.guarantees:
        stated = three_digits(cost.guarantees[STATED])
        text += f" (the framework states epsilon {stated}, which proves nothing)"
    return text


def _strength(epsilon: float) -> str:
    if epsilon > WEAK_EPSILON:
        return "guarantees practically nothing"
    if epsilon > STRONG_EPSILON:
        return "a weak guarantee"
    return "a strong guarantee"


def change_in_words(cost: DefenseCost) -> str:
    """Return what a defence does to an update; empty if it does little."""
    change = cost.perturbation.value
    if change is None or change < LARGE_CHANGE:
        return ""
    if change >= DESTROYED:
        return f"destroys the update (the change is {change:.3g} times as large)"
    return f"changes the update by more than it contains ({change:.3g} times)"
