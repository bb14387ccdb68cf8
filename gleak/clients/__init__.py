"""Clients: their batches, their local training and the form of their updates."""

from gleak.clients import captured as captured
from gleak.clients import fedavg as fedavg
from gleak.clients import fedsgd as fedsgd
