"""Unmixing: separation of the samples whose inputs to a dense layer its gradient mixes."""
