"""What sets a minion or a master up, and takes everything off again."""
