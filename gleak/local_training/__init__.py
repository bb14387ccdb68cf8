"""Local training of clients, in simulations and in federated training."""
