"""The jobs: their ledger, what becomes of them after a restart, and the guard of a stop."""
