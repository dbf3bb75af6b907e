"""Package managers: what is installed, which files belong to it, what a request changes."""
