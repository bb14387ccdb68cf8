"""Gradient matching: the engine and the parts that attacks assemble it from."""
