"""Networks that attackers or evaluators train on public data."""

from gleak.knowledge import autoencoder as autoencoder
from gleak.knowledge import biggan as biggan
from gleak.knowledge import postprocessor as postprocessor
from gleak.knowledge import tagger as tagger
