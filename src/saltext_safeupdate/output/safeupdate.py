"""
Output of the runner functions that tell of many minions
========================================================

.. versionadded:: 0.1.0

``salt-run safeupdate.versions`` and ``salt-run safeupdate.check`` show lines: first the sums,
then the minions. With ``--out=json``, or any other output, they show all that they return.
"""

__virtualname__ = "safeupdate"


def __virtual__():
    return __virtualname__


def output(data, **kwargs):
    """
    Show what ``versions`` and ``check`` return as lines.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.versions --out=safeupdate
    """
    # Salt imports all outputs in search of one such as "quiet".
    from saltext_safeupdate.master import stocktaking

    return stocktaking.shown(data)
