"""
Engine of the master: publish again what minions have missed, and drive rollouts
================================================================================

A job that is published while a minion restarts, or while the network to it is cut, never reaches
it. While this engine is configured, the master keeps an account of its publications, their minions,
and the returns. When a minion starts, and from time to time while a job has not returned, the
engine asks the minion which jobs it has accepted. It publishes the others to it again, unchanged
and under their JIDs. The ledger of the minion makes sure that no job runs twice. Nothing is
published again to minions without this extension.

It also runs the rollouts of this master
(:py:func:`~saltext_safeupdate.runners.safeupdate.rollout`), and sends the questions of runners to
minions.

If it is configured twice, only one of the two acts; the other waits, and the log says so.

Neither the job cache nor the event bus decides anything: minions can write to both.

.. code-block:: yaml

    engines:
      - safeupdate_redeliver:
          window: 3600

``window`` says how many seconds the engine looks back; ``start_tags`` are the events with which a
minion announces its start, by default ``salt/minion/*/start`` and ``minion_start``.

The account is ``safeupdate/account.db`` below the master's ``cachedir``. Only the user of the
master can read it. The arguments of a job are deleted from it as soon as every minion has returned
the job, and at the end of the window.
"""

__virtualname__ = "safeupdate_redeliver"


def __virtual__():
    if __opts__.get("__role") != "master":
        return False, "safeupdate_redeliver is an engine for masters"
    # Minions load this file as well, and do not need the modules of a master.
    from saltext_safeupdate.master import hooks

    # The workers of the master fork from this process.
    if not hooks.install(__opts__) and not hooks.stood_down():
        return False, "safeupdate_redeliver is not in 'engines' of this master"
    return __virtualname__


def start(window=3600, start_tags=None):
    """
    Run until the master ends.

    window
        Seconds to look back. Defaults to ``3600``.

    start_tags
        Patterns of the events with which a minion announces its start. Defaults to
        ``[salt/minion/*/start, minion_start]``. They are read when the master starts.
    """
    from saltext_safeupdate.master import engine

    engine.run(__opts__, window)
