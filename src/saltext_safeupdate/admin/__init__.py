"""What an administrator asks of a minion, answered as plain data."""
