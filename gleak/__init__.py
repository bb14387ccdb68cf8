"""gleak measures what a federated-learning update reveals about the data behind it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gleak import testing as testing
    from gleak.api.attacking import AttackResult as AttackResult
    from gleak.api.attacking import attack as attack
    from gleak.api.broadcast_model import CraftedModel as CraftedModel
    from gleak.api.broadcast_model import audit as audit
    from gleak.api.broadcast_model import craft as craft
    from gleak.api.client_update import batch_norm_statistics as batch_norm_statistics
    from gleak.api.client_update import compute_update as compute_update
    from gleak.api.client_update import defend as defend
    from gleak.api.gauge import Gauge as Gauge
    from gleak.api.given_specs import list_specs as list_specs
    from gleak.api.membership_inference import MembershipResult as MembershipResult
    from gleak.api.membership_inference import infer_members as infer_members
    from gleak.api.privacy_audit import audit_defense as audit_defense
    from gleak.api.privacy_audit import audit_epsilon as audit_epsilon
    from gleak.api.scoring import Scores as Scores
    from gleak.api.scoring import score as score
    from gleak.artifacts.protocol import Protocol as Protocol
    from gleak.artifacts.reconstruction import Candidate as Candidate
    from gleak.captures.local_capture import capture as capture
    from gleak.core.errors import GleakError as GleakError
    from gleak.membership.epsilon_audit import EpsilonAudit as EpsilonAudit
    from gleak.metrics.audits.alarms import AuditReport as AuditReport

__version__ = "0.2.0"

_PLACES = {
    "AttackResult": "gleak.api.attacking",
    "AuditReport": "gleak.metrics.audits.alarms",
    "Candidate": "gleak.artifacts.reconstruction",
    "CraftedModel": "gleak.api.broadcast_model",
    "EpsilonAudit": "gleak.membership.epsilon_audit",
    "Gauge": "gleak.api.gauge",
    "GleakError": "gleak.core.errors",
    "MembershipResult": "gleak.api.membership_inference",
    "Protocol": "gleak.artifacts.protocol",
    "Scores": "gleak.api.scoring",
    "attack": "gleak.api.attacking",
    "audit": "gleak.api.broadcast_model",
    "audit_defense": "gleak.api.privacy_audit",
    "audit_epsilon": "gleak.api.privacy_audit",
    "batch_norm_statistics": "gleak.api.client_update",
    "capture": "gleak.captures.local_capture",
    "compute_update": "gleak.api.client_update",
    "craft": "gleak.api.broadcast_model",
    "defend": "gleak.api.client_update",
    "infer_members": "gleak.api.membership_inference",
    "list_specs": "gleak.api.given_specs",
    "score": "gleak.api.scoring",
}
"""Module of each exported name; it is imported when the name is first used."""

__all__ = ["__version__", "testing", *_PLACES]


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module("gleak.testing")
    if name not in _PLACES:
        raise AttributeError(f"module 'gleak' has no attribute {name!r}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
