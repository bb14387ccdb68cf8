"""What an attack's search begins with."""

from gleak.matching.starts import normal as normal
from gleak.matching.starts import patterned as patterned
from gleak.matching.starts import uniform as uniform
