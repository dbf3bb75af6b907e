"""Programs that are written to a host as they are, and need its Python only."""
