"""The host: commands, files, locks, the service, processes. No Salt and no update in here."""
