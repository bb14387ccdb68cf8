"""Distances between the dummy gradient and the observed one."""
