"""File formats exchanged between stages: one frozen dataclass each, stored in HDF5."""
