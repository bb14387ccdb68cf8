"""Datasets: bundled, in the user's folders, or downloaded; one module for each origin."""

from gleak.data import bundled as bundled
from gleak.data import download as download
from gleak.data import image_folder as image_folder
from gleak.data import tabular as tabular
