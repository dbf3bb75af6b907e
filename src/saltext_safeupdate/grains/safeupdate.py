"""
Grain ``safeupdate``: the phase of the newest update, the version that runs, and whether a
restart is pending. ``phase`` is ``unknown`` if the database cannot be read; ``reason`` then
says why.
"""

from saltext_safeupdate.admin import status


def safeupdate():
    """
    Return the grain. Reads the record and starts no program.
    """
    return {"safeupdate": status.grain(__opts__)}
