"""Requests of an administrator to a transactional system."""
