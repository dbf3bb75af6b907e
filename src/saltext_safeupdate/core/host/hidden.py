"""What a transaction hides: the database, the locks and the service of the running minion."""

from __future__ import annotations

import os

from ..errors import InputError


def refuse() -> None:
    """Raise InputError inside a transaction: what is read or written there is nobody's."""
    if os.environ.get("TRANSACTIONAL_UPDATE"):
        raise InputError(
            "This runs inside a transaction, which hides the database, the locks and the service "
            "of the minion. Nothing was done. Call it outside: not with transactional_update.call, "
            "and in states that do not run in a transaction (with the executors '[safeupdate, "
            "direct_call]')."
        )
