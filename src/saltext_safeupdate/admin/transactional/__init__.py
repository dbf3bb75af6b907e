"""What an administrator asks of a transactional system."""
