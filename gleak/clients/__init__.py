"""How clients train and what they send: one file each."""

from gleak.clients import captured as captured
from gleak.clients import fedavg as fedavg
from gleak.clients import fedsgd as fedsgd
from gleak.clients import several_epochs as several_epochs
