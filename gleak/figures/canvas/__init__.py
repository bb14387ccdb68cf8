"""Drawing helpers: styles, panels, tables of texts, image grids and saving."""
