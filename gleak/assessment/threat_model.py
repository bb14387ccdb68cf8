"""Assumptions of an assessment about the attacker, and what it does not try, in words."""

from __future__ import annotations

from collections.abc import Iterator

from gleak.assessment.attack_choice import Choice
from gleak.assessment.findings import Fact
from gleak.assessment.generated_study import Effort, defenses_of
from gleak.assessment.resolved import Resolved

KINDS = {
    "honest_but_curious": "the server; it follows the protocol and reads what it receives",
    "crafting_server": "the server; it follows the protocol, but may change the parameters that it "
    "sends to all clients alike",
}
ALWAYS = (
    "Clients that collude with the server, and servers that choose which clients take part.",
    "Updates of several rounds of one client together.",
    "Parameters that differ between the clients of one round.",
    "Attacks that nobody has published, and published ones that gleak does not have.",
    "Membership inference and other questions that need no reconstruction.",
)


def describe_threat(resolved: Resolved, effort: Effort) -> list[Fact]:
    """Return who the attacker is, what it knows, and whose samples are at stake."""
    attacker, specs = resolved.deployment.attacker, resolved.specs
    texts = {
        "attacker": KINDS[attacker.kind],
        "observes": "each client's update of one round, after the client's defence",
        "knows": "the network, the parameters that it broadcast, batch size, local steps, learning "
        "rate, loss and the defence, without its random numbers",
        "knows besides": ", ".join(attacker.grants) or "nothing",
        "does not know": "samples, labels, the order of samples, the client's random numbers",
        "network": str(specs["model"]),
        "samples": str(specs["dataset"]),
        "broadcast parameters": str(specs["training"]),
        "client": str(resolved.client(effort.victims)),
        "defence": str(specs["defense"]),
    }
    facts = {**texts, **_groups(resolved)}
    return [Fact(name=name, text=text) for name, text in facts.items()]


def _groups(resolved: Resolved) -> dict[str, str]:
    """Return how clients whose updates are summed divide the batch, by the defence."""
    defenses = defenses_of(resolved).items()
    sizes = {text: each.clients_per_update for text, each in defenses}
    return {
        f"client under {text}": f"{count} clients, who divide the samples of one batch among them"
        for text, count in sizes.items()
        if count > 1
    }


def list_untried(resolved: Resolved, choice: Choice, effort: Effort) -> list[str]:
    """Return what this assessment says nothing about."""
    return [*_untried(resolved, choice, effort), *ALWAYS]


def _untried(resolved: Resolved, choice: Choice, effort: Effort) -> Iterator[str]:
    deployment = resolved.deployment
    if deployment.attacker.kind == "honest_but_curious":
        yield "A server that crafts the parameters that it broadcasts (attacker: crafting_server)."
    if not deployment.vary:
        yield (
            "Other batch sizes, local steps, networks and rounds of training than those of the "
            "deployment (key vary)."
        )
    if not deployment.defenses:
        yield "Other defences than that of the deployment (key defenses)."
    if any("public data" in each.reason for each in choice.left_out):
        yield "Attackers who train networks on public data."
    if resolved.captured and not resolved.scored:
        yield (
            "The captured updates: they were imported without their true samples, so nothing that "
            "an attack finds can be checked. Clients were simulated on the captured parameters "
            "instead; gleak import --truth adds the samples."
        )
    if not resolved.captured:
        yield "Updates of real clients: those assessed are simulated (gleak import, key captures)."
    if deployment.defenses and not effort.trained:
        yield (
            "The accuracy that each defence costs: it is measured if the deployment says how its "
            "clients train (training: federated+rounds=..., see gleak describe federated) and the "
            "budget allows."
        )
