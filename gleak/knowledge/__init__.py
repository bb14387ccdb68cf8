"""What attackers, or those who score them, learn from public data: one file each."""

from gleak.knowledge import biggan as biggan
from gleak.knowledge import codec as codec
from gleak.knowledge import generator as generator
from gleak.knowledge import postprocessor as postprocessor
from gleak.knowledge import tagger as tagger
