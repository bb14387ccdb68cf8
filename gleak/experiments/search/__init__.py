"""Hyperparameter searches: an attack's fields chosen on victims that no result is reported of."""
