from __future__ import annotations

from collections.abc import Callable

from gleak.assessment.generated_study import Effort
from gleak.assessment.resolved import Resolved
from gleak.assessment.threat_model import describe_threat

Resolve = Callable[..., Resolved]


def test_summed_updates_are_those_of_several_clients(resolved: Resolve) -> None:
    summed = "secure_aggregation+clients=2"
    facts = describe_threat(
        resolved(client={"batch_size": 4}, defenses=[summed, "topk"]), Effort(5, 100)
    )
    groups = {each.name: each.text for each in facts if each.name.startswith("client under")}
    assert list(groups) == [f"client under {summed}"]
    assert groups[f"client under {summed}"].startswith("2 clients")
