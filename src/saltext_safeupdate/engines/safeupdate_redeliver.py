"""
Engine of the master: publish again what minions have missed, and drive rollouts
================================================================================

A job that is published while a minion restarts, or while the network to it is cut, never
reaches it. While this engine is configured, the master keeps an account of what it publishes
and to whom, and of who has returned. When a minion starts, and from time to time while a job has
not returned, the engine asks the minion which jobs it has accepted. It publishes the others to it
again, under their JIDs and just as they were. The ledger of the minion makes sure that no job
runs twice. Minions without this extension are left alone.

It also drives the rollouts of this master
(:py:func:`~saltext_safeupdate.runners.safeupdate.rollout`),
and asks minions what runners want to know.

If it is configured twice, one acts; the other waits, and the log says so.

Neither the job cache nor the event bus decides anything: minions can write to both.

.. code-block:: yaml

    engines:
      - safeupdate_redeliver:
          window: 3600

``window`` is how far it looks back, in seconds; ``start_tags`` are the events with which a minion
tells of its start, by default ``salt/minion/*/start`` and ``minion_start``.

The account is ``safeupdate/account.db`` below the master's ``cachedir``, readable for the user
of the master only. What a job was called with is deleted from it as soon as every minion has
returned the job, and at the end of the window.
"""

__virtualname__ = "safeupdate_redeliver"


def __virtual__():
    if __opts__.get("__role") != "master":
        return False, "safeupdate_redeliver is an engine for masters"
    # Minions load this file as well, and do without all that a master needs.
    from saltext_safeupdate.master import hooks

    # This is the process that the workers of the master fork from.
    if not hooks.install(__opts__) and not hooks.stood_down():
        return False, "safeupdate_redeliver is not in 'engines' of this master"
    return __virtualname__


def start(window=3600, start_tags=None):
    """
    Run until the master ends.

    window
        Seconds to look back. Defaults to ``3600``.

    start_tags
        Patterns of the events with which a minion tells of its start. Defaults to
        ``[salt/minion/*/start, minion_start]``. They are read when the master starts.
    """
    from saltext_safeupdate.master import engine

    engine.run(__opts__, window)
