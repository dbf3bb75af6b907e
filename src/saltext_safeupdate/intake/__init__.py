"""What happens to a job before it runs and after it ended: all that touches salt.minion."""
