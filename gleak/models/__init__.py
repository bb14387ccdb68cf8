"""Model architectures: one module for each family."""
