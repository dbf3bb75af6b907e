"""
Stand-in of saltext-safeupdate, written by the state safeupdate.enabled: an engine.

Salt loads it only while the extension itself cannot be loaded. It waits until the extension is
there again, and hands over to it.
"""

import importlib
import logging
import os
import sys
import time

log = logging.getLogger(__name__)

__virtualname__ = "safeupdate"

_PACKAGE = "saltext_safeupdate"
_ENGINE = f"{_PACKAGE}.engines.safeupdate"
# What the engine loads when it starts: while an installation writes it, some may be missing.
_NEEDED = tuple(
    f"{_PACKAGE}.{name}"
    for name in (
        *("minion.engine", "minion.patches", "ordering.patches", "ordering.built"),
        *("ordering.of_packages", "ordering.resume"),
    )
)
# Seconds between two looks.
_INTERVAL = 10.0


def __virtual__():
    installed, _ = _installed()
    if installed is None:
        return __virtualname__
    # It is there, and says itself whether it is for this minion.
    installed.__opts__ = __opts__
    return installed.__virtual__()


def start(interval=_INTERVAL):
    """Wait for the extension, and be its engine."""
    minion = os.getppid()
    installed, problem = _installed()
    if installed is None:
        log.error(
            "The minion works as with plain Salt: saltext-safeupdate cannot be loaded (%r). "
            "Install it again for the minion's Python; nothing else has to be done.",
            problem,
        )
    seen = 0
    # An installation that is still writing is complete at the next look.
    while seen < 2:
        time.sleep(interval)
        if os.getppid() != minion:
            return
        _forget()
        installed, _ = _installed()
        seen = seen + 1 if installed is not None else 0
    installed.__opts__, installed.__salt__ = __opts__, __salt__
    answer = installed.__virtual__()
    if answer == __virtualname__:
        log.warning("saltext-safeupdate can be loaded again")
        installed.start()
        return
    log.error("saltext-safeupdate can be loaded again and does not run here: %s", answer)
    # Salt would start this engine again and again.
    while os.getppid() == minion:
        time.sleep(interval)


def _forget():
    """Forget what this process has loaded of an installation that may have been another one."""
    hooks = sys.modules.get(f"{_PACKAGE}.hooks")
    # Modules that the minion has loaded before the removal stay.
    if hooks is None or not hooks.installed_by():
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{_PACKAGE}.")]:
            del sys.modules[name]


def _installed():
    """Return the engine of the extension and None, or None and what is wrong."""
    importlib.invalidate_caches()
    try:
        for name in _NEEDED:
            importlib.import_module(name)
        return importlib.import_module(_ENGINE), None
    except Exception as err:  # noqa: BLE001 (whatever is wrong with it)
        return None, err
