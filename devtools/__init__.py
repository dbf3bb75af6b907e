"""Developer tooling: test runner, artefact cache and the system-test lab (stdlib only)."""
