"""
Engine that keeps the promises of safeupdate
============================================

It reports that the minion runs, sends the master an event for every phase of an update, sends
returns again that did not arrive, resumes jobs that a restart interrupted or reports them to their
master, and starts the supervisor if an update was interrupted. Loading it also installs the hooks
in the minion's main process.

.. code-block:: yaml

    engines:
      - safeupdate: {}

When there has been nothing to do for a minute, its process ends, if the minion reads its own copy
of its code: a minion that is handed over does. The minion starts it again within 10 seconds when
there is work.

Each phase is an event ``salt/minion/<id>/safeupdate/<phase>`` with the fields ``update``,
``kind``, ``phase``, ``reason``, ``from``, ``to`` (packages and versions), ``seq`` (grows
with each event of this minion) and ``at`` (epoch seconds).
"""

from saltext_safeupdate import hooks
from saltext_safeupdate.core.errors import SafeUpdateError

__virtualname__ = "safeupdate"


def __virtual__():
    # Engines are loaded in the main process of the minion, before it takes any job.
    try:
        if not hooks.install(__opts__) and not hooks.stood_down():
            return False, hooks.foreign() or "safeupdate runs on minions only"
        hooks.start(__opts__)
        hooks.announce(__opts__)
    except (SafeUpdateError, ImportError, SyntaxError) as err:
        # A part may be missing while pip replaces this package. Then the stand-in waits for it.
        return False, str(err)
    return __virtualname__


def start():
    """
    Run until the minion ends, or rest: a minion that is handed over starts it again when there is
    work.
    """
    from saltext_safeupdate.minion import engine, own_code

    own_code.remember(__opts__)
    engine.run(
        __opts__,
        __salt__,
        hooked=not hooks.stood_down() and not hooks.is_late(),
        late=hooks.is_late(),
        table=[each.row for each in hooks.table()],
        returners=lambda: hooks.returners(__opts__, __salt__),
    )
