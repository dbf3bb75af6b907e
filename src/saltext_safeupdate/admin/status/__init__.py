"""How this minion stands: what is not set up right, its update, its jobs."""
