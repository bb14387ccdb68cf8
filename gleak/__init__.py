"""gleak measures what a federated-learning update reveals about the data behind it."""

__version__ = "0.1.0"
