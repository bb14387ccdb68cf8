"""Defences that clients apply to their updates, one module per method family."""
