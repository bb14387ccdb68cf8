"""Starts of a search: the first dummy samples."""

from gleak.matching.starts import colours as colours
from gleak.matching.starts import optimal as optimal
from gleak.matching.starts import random_values as random_values
