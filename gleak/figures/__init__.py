"""Figures: what a study draws from its scores. One file each."""

from gleak.figures import attacks as attacks
from gleak.figures import bar as bar
from gleak.figures import distribution as distribution
from gleak.figures import images as images
from gleak.figures import line as line
from gleak.figures import losses as losses
from gleak.figures import table as table
from gleak.figures import tags as tags
from gleak.figures import traces as traces
from gleak.figures import tradeoff as tradeoff
