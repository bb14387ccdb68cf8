"""What an attack's search begins with."""

from gleak.matching.starts import blue as blue
from gleak.matching.starts import dark as dark
from gleak.matching.starts import green as green
from gleak.matching.starts import grey as grey
from gleak.matching.starts import light as light
from gleak.matching.starts import normal as normal
from gleak.matching.starts import optimal as optimal
from gleak.matching.starts import patterned as patterned
from gleak.matching.starts import red as red
from gleak.matching.starts import uniform as uniform
