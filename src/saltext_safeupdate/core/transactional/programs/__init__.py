"""Programs that run inside a transaction, where this package may not be installed."""
