"""What a server does to the parameters it broadcasts: one file each."""

from gleak.crafting import fishing as fishing
from gleak.crafting import honest as honest
from gleak.crafting import mkor as mkor
