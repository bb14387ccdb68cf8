from __future__ import annotations

import numpy as np
import pytest

from gleak.core.errors import IncompatibleError
from gleak.metrics.audits.base import Broadcast
from gleak.metrics.audits.reference import Reference
from gleak.metrics.audits.reference_layers import AuditReference
from gleak.metrics.base import MetricUnavailable
from gleak.models.lenet import LeNet
from gleak.models.perceptron import FC2
from tests.metrics.subjects import fresh_model

SHAPE = (3, 8, 8)


@pytest.mark.parametrize(
    ("received", "added"),
    [("lenet", 0), ("lenet+activation=tanh", 0), ("planted+model=lenet", 2)],
)
def test_additional_layers_are_counted(received: str, added: int):
    reference = Reference.of_architecture(LeNet(), SHAPE, 10)
    broadcast = Broadcast(fresh_model(received, SHAPE, 10), reference=reference)
    assert AuditReference().worst(broadcast).statistic == added
    assert AuditReference().alarms(broadcast) == bool(added)


def test_another_architecture_is_refused_with_what_is_missing():
    reference = Reference.of_architecture(FC2(), SHAPE, 10)
    with pytest.raises(IncompatibleError, match="256x192 is not among"):
        Broadcast(fresh_model("lenet", SHAPE, 10), reference=reference)


def test_the_order_of_layers_matters():
    model = fresh_model("fc2", SHAPE, 10)
    turned = dict(reversed(Reference.of_architecture(FC2(), SHAPE, 10).shapes.items()))
    assert np.prod([len(shape) for shape in turned.values()]) == 4
    with pytest.raises(IncompatibleError):
        Broadcast(model, reference=Reference("it", turned))


def test_without_a_reference_nothing_is_compared():
    with pytest.raises(MetricUnavailable, match="reference"):
        AuditReference().measure(Broadcast(fresh_model("fc2", SHAPE, 10)))
