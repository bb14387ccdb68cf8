"""Distances between the dummy gradient and the observed one."""

from gleak.matching.distances import cosine as cosine
from gleak.matching.distances import euclidean as euclidean
from gleak.matching.distances import likelihood as likelihood
