"""Set a minion or a master up, and turn everything off again."""
