"""Names of Salt that ordering uses."""

from __future__ import annotations

# A state that is called again has it, and is taken as Salt would take it without.
KEYWORD = "safeupdate_rerun"

# Execution functions that change packages.
PACKAGES = (
    *("pkg.install", "pkg.remove", "pkg.purge", "pkg.upgrade", "pkg.update"),
    "pkg.autoremove",
)
# Those that keep packages at their version.
HOLDS = ("pkg.hold", "pkg.unhold")
# State functions that look at packages before they change them, or change nothing.
STATES = ("aptpkg.held", *(f"pkg.{name}" for name in ("held", "installed", "latest", "unheld")))
# Functions that open a transaction of a transactional system.
TRANSACTIONS = tuple(
    f"transactional_update.{name}"
    for name in (
        *("apply", "call", "dup", "highstate", "migration", "patch", "pkg_install", "pkg_remove"),
        *("pkg_update", "run", "single", "sls", "up"),
    )
)
APPLY_SNAPSHOT = "transactional_update.apply_snapshot"
BACK = "transactional_update.rollback"
RESTARTS = ("service.restart", "service.full_restart", "minion.restart", "minion.kill")
# Functions of the module ``state`` that call chunks one by one.
RUNS = ("state.sls_id", "state.pkg")

# All of them that have handlers in front.
GUARDED = (*PACKAGES, *HOLDS, *TRANSACTIONS, APPLY_SNAPSHOT, BACK, *RESTARTS, *RUNS)
