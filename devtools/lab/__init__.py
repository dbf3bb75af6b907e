"""The lab: throw-away containers with systemd, and all that they are made from."""
