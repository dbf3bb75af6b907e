"""Versions of Salt side by side, each in a tree of its own that no package owns."""
