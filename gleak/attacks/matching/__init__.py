"""Gradient matching: the search engine and the components that attacks assemble it from."""
