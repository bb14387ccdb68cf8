"""Datasets: bundled, in the user's folders, or downloaded; one module for each origin."""
