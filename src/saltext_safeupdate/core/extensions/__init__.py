"""Packages that pip installed beside Salt, this extension first: find, stage, carry along."""
