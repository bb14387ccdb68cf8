"""Attacks: each reconstructs samples and labels from an observed update."""

from gleak.attacks import agic as agic
from gleak.attacks import best as best
from gleak.attacks import blind as blind
from gleak.attacks import cpa as cpa
from gleak.attacks import cpa_edges as cpa_edges
from gleak.attacks import cpa_fi as cpa_fi
from gleak.attacks import cpa_noisy as cpa_noisy
from gleak.attacks import dense_first as dense_first
from gleak.attacks import dlg as dlg
from gleak.attacks import fishing as fishing
from gleak.attacks import gradinversion as gradinversion
from gleak.attacks import inversion_attack as inversion_attack
from gleak.attacks import invertgrad as invertgrad
from gleak.attacks import matrix_completion as matrix_completion
from gleak.attacks import melis as melis
from gleak.attacks import mkor as mkor
from gleak.attacks import rog as rog
from gleak.attacks import sparse_fi as sparse_fi
from gleak.attacks import spear as spear
