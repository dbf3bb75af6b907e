"""Requests of an administrator to a minion, answered with plain data."""
