"""Audit of layers that the architecture which a client expects does not have."""

from __future__ import annotations

from typing import ClassVar

from gleak.core.registry import register
from gleak.core.spec import parameter
from gleak.metrics.audits.base import AuditSpec, Broadcast, Finding
from gleak.metrics.base import MetricUnavailable


@register("audit_reference")
class AuditReference(AuditSpec):
    """Number of layers that the reference does not have.

    The reference is an architecture by its published name, or a model that the client trusts. Its
    matrices and kernels must be among those received, in their order and with their shapes, or it
    is another architecture; what was received besides are the additional layers. Names of layers do
    not matter.
    """

    source = "MKOR section 2: changes of the model's structure"
    meaning: ClassVar[str] = (
        "The network has layers that the architecture it is said to be does not have: layers "
        "added by a server serve to copy samples into the update."
    )

    limit: float = parameter(
        0.5, "number above which an alarm is raised", source="by definition", gt=0
    )

    def examine(self, broadcast: Broadcast) -> list[Finding]:
        if broadcast.reference is None:
            raise MetricUnavailable("there is no architecture to compare with (--reference)")
        added = broadcast.reference.added_layers(broadcast.model)
        if not added:
            return [Finding("", 0.0, f"all layers are those of {broadcast.reference.name}")]
        text = f"{', '.join(added)}: not in {broadcast.reference.name}"
        return [Finding(added[0], float(len(added)), text)]
