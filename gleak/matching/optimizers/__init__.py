"""Optimizers of a search, each over many independent problems at once."""

from gleak.matching.optimizers import first_order as first_order
from gleak.matching.optimizers import gauss_newton as gauss_newton
from gleak.matching.optimizers import quasi_newton as quasi_newton
