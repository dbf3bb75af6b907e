"""The acting program: it installs, restarts, watches, and goes back."""
