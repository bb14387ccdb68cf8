"""Codes of samples, the unknowns of a search."""

from gleak.matching.codes import sample_codes as sample_codes
