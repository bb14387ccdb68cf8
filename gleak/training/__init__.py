"""Training of the broadcast model: none, central or federated."""

from gleak.training import central as central
from gleak.training import federated as federated
from gleak.training import untrained as untrained
