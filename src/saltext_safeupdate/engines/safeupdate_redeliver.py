"""
Engine of the master: publish again what minions have missed, and drive rollouts
================================================================================

A job that is published while a minion restarts, or is brought back after a crash, never reaches it.
While this engine is configured, the master keeps an account of its latest publications. When a
minion starts, the engine asks it which of them it has missed, and publishes these to it again,
unchanged and under their JIDs, unless somebody has given them up or ended them. The ledger of the
minion makes sure that no job runs twice. Nothing is published again to minions without this
extension, or to a host that was off.

It also runs the rollouts of this master
(:py:func:`~saltext_safeupdate.runners.safeupdate.rollout`), and sends the questions of runners to
minions.

If it is configured twice, only one of the two acts; the other waits, and the log says so.

Neither the job cache nor the event bus decides anything: minions can write to both.

.. code-block:: yaml

    engines:
      - safeupdate_redeliver:
          window: 300
          leave_out:
            functions: [cmd.*]
            users: [nightly]
            minions: [db*]

The account is ``safeupdate/account.db`` below the master's ``cachedir``. Only the user of the
master can read it. A job is deleted from it after ``window`` seconds.
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


def start(window=300, start_tags=None, include=None, leave_out=None):
    """
    Run until the master ends.

    window
        Seconds to look back, at most 900. Defaults to ``300``.

    start_tags
        Patterns of the events with which a minion announces its start. Defaults to
        ``[salt/minion/*/start, minion_start]``. They are read when the master starts.

    include
        Functions that are published again although they are about the moment at which they are
        published, such as ``service.restart``: a list of names and patterns. Empty by default.

    leave_out
        Jobs that are never published again: a mapping with lists of ``functions``, ``users`` and
        ``minions``, as names and patterns. Empty by default. A job that is published with
        ``--metadata '{redeliver: False}'`` is not published again either.
    """
    from saltext_safeupdate.master import engine

    # The workers of the master have read the other options.
    engine.run(__opts__, window)
