"""What a transaction hides: the database, the locks and the service of the running minion."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..errors import InputError


def in_transaction(environ: Mapping[str, str]) -> bool:
    """
    Tell whether this process runs inside a transaction.

    The tool says so in the environment. A difference from the mount table of pid 1 says nothing:
    containers and services with private mounts differ too.
    """
    return bool(environ.get("TRANSACTIONAL_UPDATE"))


def refuse() -> None:
    """Raise InputError inside a transaction: what is read or written there is nobody's."""
    if in_transaction(os.environ):
        raise InputError(
            "This runs inside a transaction, which hides the database, the locks and the service "
            "of the minion. Nothing was done. Call it outside: not with transactional_update.call, "
            "and in states that do not run in a transaction (with the executors '[safeupdate, "
            "direct_call]')."
        )
