"""Simulated clients: batches, local training, defences, updates, grants and the truth."""
