"""Crafting: modifications of the parameters by the server before it broadcasts them."""

from gleak.crafting import fishing as fishing
from gleak.crafting import honest as honest
from gleak.crafting import mkor as mkor
