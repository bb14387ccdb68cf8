"""Local training of clients, simulated or federated."""
