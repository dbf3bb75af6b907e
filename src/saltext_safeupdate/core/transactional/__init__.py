"""Transactional systems: a read-only btrfs root that ``transactional-update`` replaces."""
