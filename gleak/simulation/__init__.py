"""Simulation of clients: batches, updates, grants and the true samples."""
