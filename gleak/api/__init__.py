"""Functions for use without files and workflow; `gleak` itself exports them."""
