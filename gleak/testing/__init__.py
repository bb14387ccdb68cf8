"""Contract tests for classes and networks of users, to be called in their own tests."""

from gleak.testing.attack_contract import check_attack as check_attack
from gleak.testing.defense_contract import check_defense as check_defense
from gleak.testing.model_contract import check_model as check_model
