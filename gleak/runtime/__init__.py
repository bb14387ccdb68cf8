"""What every job needs around its work: seeds, device, progress, logs, provenance, digests."""
