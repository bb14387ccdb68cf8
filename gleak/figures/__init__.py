"""Figures and tables that a study makes from its scores."""
