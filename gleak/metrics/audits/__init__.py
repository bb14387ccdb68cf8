"""Audits: statistics of broadcast parameters that a client computes before it trains."""
