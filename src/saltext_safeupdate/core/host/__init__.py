"""The host: commands, files, locks, the service, processes. Knows nothing of Salt or updates."""
