"""Codes of samples, the unknowns of a search."""
