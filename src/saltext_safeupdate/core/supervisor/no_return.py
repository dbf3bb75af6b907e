"""The point of no return: the last actions while nothing of the minion has changed."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from ..errors import SafeUpdateError
from ..host import linked_copy
from ..packages.manager import Transactions
from ..prepare import marks
from ..prepare.revisions import Revisions
from ..record.phase import Phase
from ..record.store import Store
from ..record.update import Update


def _fix(err: OSError) -> str:
    lacks_room = err.errno in (errno.ENOSPC, errno.EDQUOT)
    return "make room there" if lacks_room else "try again when the cause is gone"


def passed(
    store: Store,
    revisions: Revisions,
    update: Update,
    arm: Callable[[Mapping[str, str]], object],
    manager: Transactions | None,
) -> Update:
    """
    Return the record in ``installing``: from here on the update is completed. All locks are held,
    so no other job runs.

    *arm* makes sure that a supervisor continues the update, whichever process dies; it gets the
    linked copies of the old code by their directories. *manager* is the package manager of the
    host. Raise SafeUpdateError or OSError before anything has changed.
    """
    for problem, fix in marks.foreign(manager.marks if manager is not None else ()):
        # Others may have made it since the pre-flight.
        raise SafeUpdateError(f"{problem} Nothing was changed. {fix}")
    roots = update.code.roots
    # Other jobs may have changed the configuration since then, and none can now.
    revisions.renew_backup(update.way_back)
    try:
        # No other job runs, so nobody reads existing copies. Some may be copies of this update by
        # a supervisor that was killed, and the code has changed since then.
        linked_copy.remove_leftovers(roots)
        copies = linked_copy.make(roots, update.id)
    except OSError as err:
        raise SafeUpdateError(
            f"No readable copy of the running code could be made next to {', '.join(roots)}: "
            f"{err.strerror or err}. Nothing was changed; {_fix(err)}."
        ) from err
    arm(copies)
    return store.save(update.advance(Phase.INSTALLING))
