"""Rehearsals: every stage of a study with its true shapes, on a virtual GPU and without data."""
