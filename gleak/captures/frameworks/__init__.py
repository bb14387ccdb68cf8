"""Capture and measurement of the rounds of Flower and NVIDIA FLARE."""
