"""Package managers: what is installed, who owns what, and what a request would change."""
