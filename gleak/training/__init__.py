"""Training of the broadcast model: none, central or federated."""
