"""Distances between a dummy gradient and the observed one."""

from gleak.matching.distances import cosine as cosine
from gleak.matching.distances import l2 as l2
from gleak.matching.distances import signs as signs
