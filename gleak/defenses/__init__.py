"""Defences that clients apply to their updates, one module per method family."""

from gleak.defenses import differential_privacy as differential_privacy
from gleak.defenses import low_rank as low_rank
from gleak.defenses import noise as noise
from gleak.defenses import none as none
from gleak.defenses import quantisation as quantisation
from gleak.defenses import secure_aggregation as secure_aggregation
from gleak.defenses import soteria as soteria
from gleak.defenses import sparsification as sparsification
