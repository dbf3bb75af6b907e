"""Make an update of the minion run last: the only place that touches salt.state and salt.loader."""
