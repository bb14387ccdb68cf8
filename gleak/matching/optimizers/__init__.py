"""Optimisers of the matching engine, each over many independent problems at once."""

from gleak.matching.optimizers import adagrad as adagrad
from gleak.matching.optimizers import adam as adam
from gleak.matching.optimizers import lbfgs as lbfgs
from gleak.matching.optimizers import sgd as sgd
