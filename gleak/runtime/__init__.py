"""Runtime support of every job: seeds, devices, checkpoints, progress, logs and provenance."""
