"""Metrics that compare reconstructed samples with the true ones."""
