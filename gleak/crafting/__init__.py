"""Crafting: modifications of the parameters by the server before it broadcasts them."""
