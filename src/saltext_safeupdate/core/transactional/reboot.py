"""Reboot by the tool's configured method, and see whether it was really asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import CommandError, InputError, SafeUpdateError
from ..host import systemd
from ..host.command import Run
from ..record.parts import ASKING
from . import cli
from .cli import Options
from .outcome import Limits
from .rebootmgr import RebootManager
from .tool import Tool

CONFIG = (Path("/usr/etc/transactional-update.conf"), Path("/etc/transactional-update.conf"))
TUKIT_CONFIG = (Path("/usr/etc/tukit.conf"), Path("/etc/tukit.conf"), Path("/etc/tukit.conf.d"))
REBOOT_NEEDED = Path("/run/reboot-needed")
KURED_FILE = Path("/var/run/reboot-required")
METHODS = ("auto", "kexec", "kured", "none", "notify", "rebootmgr", "systemd")
# The answer for a requested reboot begins like this.
REQUESTED = "reboot requested"
# Methods by which it comes at once, and not when it suits somebody.
AT_ONCE = ("kexec", "systemd")
_QUERY_TIMEOUT = 60.0
# Seconds within which a reboot that was asked for has to be seen.
_UNDER_WAY = 5.0


def comes_now(said: str) -> bool:
    """
    Tell whether the host reboots by itself now, by what :func:`reboot` has returned.

    That may be the case as long as it has not.
    """
    return said in [ASKING, *(f"{REQUESTED} (method {name})" for name in AT_ONCE)]


def setting(name: str, default: str, files: Sequence[Path]) -> str:
    """Return a ``KEY=value`` setting; a later file wins, a directory stands for its files."""
    value = default
    for place in files:
        for path in sorted(place.glob("*.conf")) if place.is_dir() else [place]:
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            for found in re.finditer(rf"^\s*{name}\s*=\s*(.*?)\s*$", text, re.MULTILINE):
                value = found[1].strip("\"'") or default
    return value


def method(run: Run, files: Sequence[Path] = CONFIG) -> str:
    """Return the method that the tool will use; ``auto`` is resolved as the tool does it."""
    name = setting("REBOOT_METHOD", "auto", files)
    if name not in METHODS:
        raise SafeUpdateError(
            f"REBOOT_METHOD={name[:50]} in transactional-update.conf is not one of "
            f"{', '.join(METHODS)}; nothing was rebooted. Correct it"
        )
    if name == "auto":
        return "rebootmgr" if _answers(run, ("rebootmgrctl", "is-active", "--quiet")) else "systemd"
    return name


def _answers(run: Run, argv: Sequence[str]) -> bool:
    try:
        return run(argv, timeout=_QUERY_TIMEOUT, ok=None).returncode == 0
    except CommandError:
        return False  # not installed


def scheduled(run: Run, name: str, kured_file: Path = KURED_FILE) -> bool:
    """Tell whether the reboot is under way or waits for its time."""
    if name == "rebootmgr":
        status = run(("rebootmgrctl", "status", "--quiet"), timeout=_QUERY_TIMEOUT, ok=None)
        if status.returncode in (1, 2, 3) and not status.stderr.strip():
            return True
        # Its status is 0 again as soon as it has told systemd.
    if name == "kured":
        return kured_file.exists()
    return systemd.goes_down(run)


def reboot(
    tool: Tool,
    *,
    self_update: bool = False,
    limits: Limits,
    files: Sequence[Path] = CONFIG,
    kured_file: Path = KURED_FILE,
) -> str:
    """Let the tool reboot; return what will happen; raise if nothing will."""
    name = method(tool.run, files)
    if name == "rebootmgr" and RebootManager(tool.run).get_strategy() == "off":
        raise SafeUpdateError(
            "rebootmgr is off, so no reboot was asked for: it would not come. Set a strategy "
            "with rebootmgr.set_strategy ('on' since rebootmgr 3), then reboot again; or set "
            "another REBOOT_METHOD in transactional-update.conf"
        )
    options = Options(self_update=self_update)
    outcome = tool.invoke(["reboot"], options, limits).check()
    if name == "none":
        return "REBOOT_METHOD=none: nothing reboots by itself; reboot when it suits"
    if name == "notify":
        return "REBOOT_METHOD=notify: users were told to reboot; nothing reboots by itself"
    deadline = tool.now() + _UNDER_WAY
    while not (found := scheduled(tool.run, name, kured_file)) and tool.now() < deadline:
        tool.pause(_UNDER_WAY / 10)
    if not found:
        detail = outcome.result.stderr.strip()[-500:]
        raise SafeUpdateError(
            f"transactional-update returned 0, but no reboot is under way (method {name})"
            + (f": {detail}" if detail else "")
            + ". The system runs on as it was; see whether the method works, then reboot again"
        )
    return f"{REQUESTED} (method {name})"


def soft_reboot(
    tool: Tool,
    *,
    limits: Limits,
    needed: Path = REBOOT_NEEDED,
    tukit: Sequence[Path] = TUKIT_CONFIG,
    files: Sequence[Path] = CONFIG,
) -> str:
    """Reboot user space only; raise if the pending change needs more."""
    version = cli.tool_version(tool.run)
    if version < cli.SOFT_REBOOT_SINCE:
        raise InputError(
            f"transactional-update {cli.dotted(version)} knows no soft-reboot: it came with "
            f"{cli.dotted(cli.SOFT_REBOOT_SINCE)}. Nothing was rebooted; use reboot"
        )
    try:
        level = needed.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        level = ""
    if level != "soft-reboot":
        raise InputError(
            f"a soft-reboot is not enough (needed: {level[:50] or 'not known'}). "
            "Nothing was rebooted; use reboot"
        )
    if setting("REBOOT_ALLOW_SOFT_REBOOT", "true", tukit) != "true":
        raise InputError(
            "REBOOT_ALLOW_SOFT_REBOOT is not true in tukit.conf, so the tool would reboot fully. "
            "Nothing was rebooted; set it, or use reboot"
        )
    return reboot(tool, limits=limits, files=files)
