"""Experiments: cells, grids, studies, searches, and what they cost."""
