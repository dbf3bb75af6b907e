"""
Grain ``safeupdate``: the running version, the final phase of the newest update, and whether a
reboot of the host is pending. Other phases pass too fast for a grain; ``safeupdate.status`` and the
beacon have them. ``phase`` is ``idle`` if there was no update. It is ``unknown`` if the database
cannot be read; ``reason`` then says why.
"""

from saltext_safeupdate.admin.status import grain


def safeupdate():
    """
    Return the grain. Reads the record and starts no program.
    """
    return {"safeupdate": grain.grain(__opts__)}


def paths():
    """
    Return Salt's own grains ``pythonpath`` and ``saltpath`` as they are for every process.

    A minion that is handed over reads copies of its code, and the names of these copies change with
    each start.
    """
    return grain.paths()
