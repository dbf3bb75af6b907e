"""Programs that run inside a transaction. This package may not be installed there."""
