"""The point of no return: the last that is done while nothing of the minion has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import SafeUpdateError
from ..generations.trees import Trees
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

    *arm* has the update looked after, whichever process dies; it gets the trees of the old code by
    their directories. Raises SafeUpdateError before anything was changed.
    """
    roots, trees = update.code.roots, Trees(store)
    # Other jobs have changed the configuration since, and none can now.
    revisions.renew_backup(update.way_back)
    try:
        # Nobody reads those of an earlier update any more: no other job runs.
        trees.remove_others(roots, update.id)
        made = trees.make(roots, update.id)
    except OSError as err:
        raise SafeUpdateError(
            f"The running code could not be kept readable beside {', '.join(roots)}: "
            f"{err.strerror or err}. Nothing was changed; look at the space there."
        ) from err
    arm(made)
    return store.save(update.advance(Phase.INSTALLING))
