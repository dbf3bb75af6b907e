"""``rebootmgrctl`` 1.x and 2.x: checked input, and answers as data."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import CommandError, InputError, SafeUpdateError
from ..host.command import Result, Run

PROGRAM = "rebootmgrctl"
STRATEGIES = ("best-effort", "etcd-lock", "maint-window", "instantly", "off")
# Only since 3 there is a way to switch it on again with the strategy that it had.
_ON_SINCE = 3
# Its full status if it is off; the strategy is the one from before.
_SWITCHED_OFF = "reboots temporarily disabled"
_TIMEOUT = 60.0
_WINDOW = re.compile(r"Maintenance window is set to '?(.*?)'?, lasting (.*?)\.?\s*$", re.MULTILINE)
_FULL_WINDOW = re.compile(
    r"Start of maintenance window: (.*)\s+Duration of maintenance window: (.*)"
)
_EATEN = (
    "time has arrived as the number {time}. On a command line and in YAML, 20:00 is the number "
    "1200, so nobody can say which time is meant; nothing was changed. Put it in quotes twice, "
    "such as time=\"'{likely}'\", and once in YAML."
)
_GROUP = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,254}")
# 2.0 has no etcd and so no groups and locks; it says is-active and wants a strategy.
_WITHOUT_ETCD = (2,)


class RebootManager:
    """The commands of rebootmgr, in the form that the installed version understands."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def _ctl(self, *words: str, ok: Sequence[int] | None = (0,)) -> Result:
        return self._run((PROGRAM, *words), timeout=_TIMEOUT, ok=ok)

    def version(self) -> str:
        """Return the version of rebootmgrctl."""
        words = self._ctl("--version").stdout.split()
        if not words or not re.fullmatch(r"\d+(\.\d+)*\S*", words[-1]):
            raise SafeUpdateError(
                "rebootmgrctl --version prints no version, so its commands are not known; "
                "nothing was changed"
            )
        return words[-1]

    def _new(self) -> bool:
        return self._major() >= _WITHOUT_ETCD[0]

    def _major(self) -> int:
        return int(self.version().partition(".")[0])

    def _needs_etcd(self, what: str) -> None:
        if self._new():
            raise InputError(
                f"rebootmgr {self.version()} has no {what}: etcd was taken out in 2.0; "
                "nothing was changed. Use the strategy maint-window"
            )

    def is_active(self) -> bool:
        """Tell whether rebootmgrd runs."""
        word = "is-active" if self._new() else "is_active"
        return self._ctl(word, "--quiet", ok=None).returncode == 0

    def reboot(self, order: str | None, *, soft: bool = False) -> str:
        """Ask for a reboot."""
        new = self._new()
        orders = ("now",) if new else ("now", "fast")
        if order and order not in orders:
            raise InputError(
                f"order has to be one of {', '.join(orders)} with this rebootmgr; "
                "no reboot was asked for"
            )
        if soft and not new:
            raise InputError(
                "this rebootmgr knows no soft-reboot (2.x does); no reboot was asked for"
            )
        return self._ctl("soft-reboot" if soft else "reboot", *([order] if order else [])).stdout

    def cancel(self) -> str:
        """Take a reboot back that was asked for."""
        return self._ctl("cancel").stdout

    def status(self) -> int:
        """Return 0 to 3: nothing asked for, asked for, waiting for the window, for the lock."""
        result = self._ctl("status", "--quiet", ok=(0, 1, 2, 3))
        if result.returncode and result.stderr.strip():
            raise CommandError(
                result.argv, "rebootmgrd does not answer; is it running?", stderr=result.stderr
            )
        return result.returncode

    def set_strategy(self, strategy: str | bool | None) -> str:
        """
        Set how rebootmgr reboots; say so if it was set before already.

        YAML makes booleans of ``on`` and ``off``: they are taken for these words. ``None`` and
        an empty text are rebootmgr's default, ``best-effort``.
        """
        if isinstance(strategy, bool):
            strategy = "on" if strategy else "off"
        wanted = "best-effort" if strategy in (None, "") else strategy
        known = self._strategies()
        if wanted not in known:
            raise InputError(
                f"strategy has to be one of {', '.join(known)} with this rebootmgr, not "
                f"{str(wanted)[:100]!r}; nothing was changed"
            )
        before = self.get_strategy()
        if before == wanted or (wanted == "on" and before != "off"):
            return f"The strategy was {before} already; nothing was changed."
        said = self._ctl("set-strategy", wanted).stdout.strip()
        if self.get_strategy() == before:
            said = f"{said} rebootmgr still says that the strategy is {before}.".strip()
            said += " Take that back with the strategy 'on'." if before == "off" else ""
        return said or f"The strategy is {wanted} now."

    def _strategies(self) -> list[str]:
        """Return the strategies that this version takes."""
        major = self._major()
        known = [name for name in STRATEGIES if name != "etcd-lock" or major < _WITHOUT_ETCD[0]]
        return [*known, "on"] if major >= _ON_SINCE else known

    def get_strategy(self) -> str:
        """Return how rebootmgr reboots: ``off`` also if that is set in addition to a strategy."""
        if self._major() >= _ON_SINCE and _SWITCHED_OFF in self._ctl("status", "--full").stdout:
            return "off"
        return self._ctl("get-strategy").stdout.split(":")[-1].strip()

    def set_window(self, time: str | float, duration: str) -> str:
        """Set the maintenance window."""
        if isinstance(time, int | float) and not isinstance(time, bool):
            raise InputError(_EATEN.format(time=time, likely=_likely(time)))
        if not isinstance(time, str) or time.startswith("-") or "\0" in time or "\n" in time:
            raise InputError(
                "time has to be a text as in systemd.time(7), such as 'Thu 03:00'; "
                "nothing was changed"
            )
        if not re.fullmatch(r"(?=\d)(\d{1,3}h)?(\d{1,4}m)?", str(duration)):
            raise InputError("duration has to be [XXh][YYm], as in 1h30m; nothing was changed")
        return self._ctl("set-window", time, str(duration)).stdout

    def get_window(self) -> dict[str, str]:
        """Return the maintenance window as ``time`` and ``duration``."""
        found = _WINDOW.search(self._ctl("get-window").stdout)
        if not found and self._new():
            found = _FULL_WINDOW.search(self._ctl("status", "--full").stdout)
        if not found:
            raise SafeUpdateError(
                "rebootmgrctl names no maintenance window; set one with set_window"
            )
        return {"time": found[1].strip(), "duration": found[2].strip()}

    def set_group(self, group: str) -> str:
        """Set the etcd group whose lock this machine takes."""
        self._needs_etcd("groups")
        return self._ctl("set-group", _group(group)).stdout

    def get_group(self) -> str:
        """Return the etcd group whose lock this machine takes."""
        self._needs_etcd("groups")
        text = self._ctl("get-group").stdout
        found = re.search(r"Etcd lock group is set to (\S+)", text)
        if not found:
            raise SafeUpdateError(f"rebootmgrctl names no group: {text.strip()[:200]!r}")
        return found[1]

    def set_max(self, max_locks: int, group: str | None) -> str:
        """Set how many machines of a group may reboot at once."""
        self._needs_etcd("locks")
        if isinstance(max_locks, bool) or not re.fullmatch(r"[1-9]\d{0,5}", str(max_locks)):
            raise InputError("max_locks has to be a number of 1 or more; nothing was changed")
        return self._ctl("set-max", *_in_group(group), str(max_locks)).stdout

    def lock(self, verb: str, machine_id: str | None, group: str | None) -> str:
        """``lock`` or ``unlock`` a machine."""
        self._needs_etcd("locks")
        words = _in_group(group)
        if machine_id:
            if not re.fullmatch(r"[0-9a-f]{32}", str(machine_id)):
                raise InputError(
                    "machine_id has to be 32 hexadecimal digits, as in /etc/machine-id; "
                    "nothing was changed"
                )
            words.append(machine_id)
        return self._ctl(verb, *words).stdout


def _likely(time: float) -> str:
    """Return a time of the day that YAML may have made this number of; else an example."""
    if isinstance(time, int) and 10 * 60 <= time < 24 * 60:
        return f"{time // 60:02}:{time % 60:02}"
    return "20:00"


def _group(group: str) -> str:
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise InputError(f"{str(group)[:100]!r} is no group name; nothing was changed")
    return group


def _in_group(group: str | None) -> list[str]:
    return ["--group", _group(group)] if group else []
