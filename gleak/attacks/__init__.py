"""Attacks: one file each."""

from gleak.attacks import agic as agic
from gleak.attacks import agic_epochs as agic_epochs
from gleak.attacks import aono as aono
from gleak.attacks import blind as blind
from gleak.attacks import cpa as cpa
from gleak.attacks import cpa_edges as cpa_edges
from gleak.attacks import cpa_fi as cpa_fi
from gleak.attacks import cpa_fi_gm as cpa_fi_gm
from gleak.attacks import cpl as cpl
from gleak.attacks import dlg as dlg
from gleak.attacks import dlg_adam as dlg_adam
from gleak.attacks import fi as fi
from gleak.attacks import fishing as fishing
from gleak.attacks import gm as gm
from gleak.attacks import idlg as idlg
from gleak.attacks import invertgrad as invertgrad
from gleak.attacks import melis as melis
from gleak.attacks import mkor as mkor
from gleak.attacks import rog as rog
from gleak.attacks import rogs as rogs
from gleak.attacks import spear as spear
