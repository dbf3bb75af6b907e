"""
A set-up that was taken away while the minion runs with it.

A run that owns the directory of the configuration, such as a clean ``file.recurse``, removes our
file. The next minion is a plain one, and does not know what it lacks: so this one says it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import salt.config
import salt.utils.event
import salt.utils.yaml

from ..core.errors import SafeUpdateError
from ..core.jobs import current
from ..core.record.facts import LEAVING
from ..patches import tell
from ..this_host import Host, enabled

log = logging.getLogger(__name__)

# The last part of the tag of the event.
_TAG = "set_up_removed"
PROBLEM = (
    "No configuration file sets the minion up for safeupdate any more: it has read one that was "
    "removed since. From its next restart on, nothing protects its jobs."
)
FIX = (
    "Run 'state.single safeupdate.enabled name=safeupdate' on the minion. Let a state that owns "
    "the directory, such as 'file.recurse' with 'clean: True', leave the file there: "
    "'exclude_pat: _*'."
)


def stamp(opts: Mapping[str, Any]) -> tuple[int, ...]:
    """Return something that changes if a file is removed from the directories that are included."""
    return tuple(stat.st_mtime_ns for stat in map(_stat, _directories(opts)) if stat is not None)


def is_gone(host: Host) -> bool:
    """Tell whether this process runs with a set-up that no file has any more."""
    opts = host.opts
    if not enabled(opts) or not stamp(opts):
        return False
    if host.store.exists() and host.store.replaceable(LEAVING) is not None:
        # 'safeupdate.disabled' has removed it.
        return False
    return not enabled({**opts, "module_executors": [], "engines": [], **_said(opts["conf_file"])})


def _said(path: str) -> dict[str, Any]:
    """Return what the files say, as Salt reads them; raise SafeUpdateError if one is unreadable."""
    main: dict[str, Any] = {}
    try:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                main = salt.utils.yaml.safe_load(file) or {}
        defaults = salt.config.DEFAULT_MINION_OPTS
        listed = (main.get("default_include", defaults["default_include"]), main.get("include", []))
        for each in listed:
            main.update(salt.config.include_config(each, path, verbose=False))
    except (OSError, ValueError, AttributeError, salt.utils.yaml.YAMLError) as err:
        raise SafeUpdateError(f"The configuration of {path} cannot be read: {err}") from err
    return main


def look(host: Host, before: tuple[int, ...]) -> None:
    """Say at the end of a run that it has taken the set-up away. *before* is the earlier stamp."""
    try:
        if stamp(host.opts) == before or not is_gone(host):
            return
        log.warning("safeupdate: this run has removed the set-up. %s %s", PROBLEM, FIX)
        _send(host.opts)
    except Exception as err:  # noqa: BLE001 (it is told)
        tell("a look at the configuration", err)


def _send(opts: Mapping[str, Any]) -> None:
    if opts.get("file_client") == "local":
        return
    job = current.get()
    event = {
        "data": {"jid": job.jid if job is not None else "", "reason": PROBLEM},
        "tag": f"salt/minion/{opts['id']}/safeupdate/{_TAG}",
        "events": None,
        "pretag": None,
    }
    with salt.utils.event.get_event("minion", opts=dict(opts), listen=False) as bus:
        bus.fire_event(event, "fire_master")


def _directories(opts: Mapping[str, Any]) -> list[str]:
    listed = opts.get("default_include") or ()
    base = os.path.dirname(str(opts.get("conf_file") or ""))
    patterns = [listed] if isinstance(listed, str) else listed
    return [os.path.join(base, os.path.dirname(str(each))) for each in patterns] if base else []


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
