"""What stands for a sample in a search: one file each."""

from gleak.matching.codes import bicubic as bicubic
from gleak.matching.codes import pixels as pixels
