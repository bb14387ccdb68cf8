"""Metrics: reconstruction quality, cost of attacks, privacy, model accuracy and client audits."""
