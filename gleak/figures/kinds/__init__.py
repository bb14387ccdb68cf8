"""Registered kinds of figures, each with its spec and its drawing."""
