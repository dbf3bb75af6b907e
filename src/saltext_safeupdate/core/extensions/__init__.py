"""Packages that pip installed into Salt's Python, this extension first: find, stage, carry over."""
