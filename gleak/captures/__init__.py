"""Updates captured outside of gleak."""
