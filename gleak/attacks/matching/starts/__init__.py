"""Starts of a search: the first dummy samples."""
