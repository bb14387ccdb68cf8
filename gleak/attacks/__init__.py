"""Attacks: one file each."""

from gleak.attacks import aono as aono
from gleak.attacks import blind as blind
from gleak.attacks import cpl as cpl
from gleak.attacks import dlg as dlg
from gleak.attacks import idlg as idlg
from gleak.attacks import invertgrad as invertgrad
from gleak.attacks import melis as melis
