"""Optimisers of clients, and schedules of their learning rates."""
