"""Optimizers of a search, each over many independent problems at once."""
