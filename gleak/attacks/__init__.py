"""Attacks: each reconstructs samples and labels from an observed update."""
