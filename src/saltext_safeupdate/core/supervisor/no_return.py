"""The point of no return: the last that is done while nothing of the minion has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import SafeUpdateError
from ..host import linked_copy
from ..prepare.revisions import Revisions
from ..record.phase import Phase
from ..record.store import Store
from ..record.update import Update


def passed(
    store: Store, revisions: Revisions, update: Update, arm: Callable[[Mapping[str, str]], object]
) -> Update:
    """
    Return the record in ``installing``: from here on the update is brought to an end. All locks
    are held, so no other job runs.

    *arm* has the update looked after, whichever process dies; it gets the linked copies of the
    old code by their directories. Raises SafeUpdateError or OSError before anything was changed.
    """
    roots = update.code.roots
    # Other jobs have changed the configuration since, and none can now.
    revisions.renew_backup(update.way_back)
    try:
        # Nobody reads those that are there any more: no other job runs. Some may be of this update
        # itself, by a supervisor that was killed, and the code has changed since.
        linked_copy.remove_leftovers(roots)
        copies = linked_copy.make(roots, update.id)
    except OSError as err:
        raise SafeUpdateError(
            f"The running code could not be kept readable beside {', '.join(roots)}: "
            f"{err.strerror or err}. Nothing was changed; look at the space there."
        ) from err
    arm(copies)
    return store.save(update.advance(Phase.INSTALLING))
