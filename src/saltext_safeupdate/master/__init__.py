"""The only room that knows the master and its caches."""
