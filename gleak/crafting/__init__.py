"""What a server does to the parameters it broadcasts: one file each."""

from gleak.crafting import honest as honest
