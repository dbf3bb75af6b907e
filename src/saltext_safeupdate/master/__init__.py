"""The only room that knows the master."""
