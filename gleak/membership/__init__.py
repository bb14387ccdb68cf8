"""Inference of who took part in a round, and of how private it was."""
