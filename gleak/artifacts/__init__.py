"""The file formats between stages: one frozen dataclass each, in HDF5."""
