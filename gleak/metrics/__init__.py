"""Metrics: reconstruction quality, cost of attacks, privacy, model accuracy and client audits."""

from gleak.metrics import accuracy as accuracy
from gleak.metrics import epsilon as epsilon
from gleak.metrics import reconstruction_bound as reconstruction_bound
from gleak.metrics import recovery as recovery
from gleak.metrics import search_costs as search_costs
from gleak.metrics import update_properties as update_properties
from gleak.metrics.audits import alarms as alarms
from gleak.metrics.audits import dense_layers as dense_layers
from gleak.metrics.audits import dependent_neurons as dependent_neurons
from gleak.metrics.audits import dominance as dominance
from gleak.metrics.audits import single_weight_paths as single_weight_paths
from gleak.metrics.reconstruction import embedding_cosine as embedding_cosine
from gleak.metrics.reconstruction import jaccard as jaccard
from gleak.metrics.reconstruction import lpips as lpips
from gleak.metrics.reconstruction import oracle_sign as oracle_sign
from gleak.metrics.reconstruction import pixel_similarity as pixel_similarity
