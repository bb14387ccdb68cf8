"""Hyperparameter searches: an attack's fields are tuned on victims from the train split."""
