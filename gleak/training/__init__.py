"""How a model comes by its parameters: one file each."""

from gleak.training import captured as captured
from gleak.training import central as central
from gleak.training import federated as federated
from gleak.training import pretrained as pretrained
from gleak.training import untrained as untrained
