"""
Output of the runner functions about many minions
=================================================

.. versionadded:: 0.1.0

``salt-run safeupdate.versions`` and ``salt-run safeupdate.check`` show lines: first the sums,
then the minions. With ``--out=json``, or any other output, they show all their data.
"""

__virtualname__ = "safeupdate"


def __virtual__():
    return __virtualname__


def output(data, **kwargs):
    """
    Show the data of ``versions`` and ``check`` as lines.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.versions --out=safeupdate
    """
    # Imported here, because Salt imports all outputters even for one such as "quiet".
    from saltext_safeupdate.master import stocktaking

    return stocktaking.shown(data)
