"""Clients: their batches, their local training and the form of their updates."""
