"""
The keeper: start the minion from its active slot, or from the original program, and stay with it.

It is put in place of the program that starts the minion on a host without systemd. The caller has
one process, which continues while the minion below it is restarted, and which ends with the exit
status of the minion. This file needs no other one: it has to work even if Salt is broken.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import stat
import sys
import time
import uuid
from typing import Any

# These are filled in when it is put in place: the directory of its state, and the two programs.
DIRECTORY = ""
ACTIVE = ""
BEFORE = ""

# Signals of a supervisor: start or restart the minion; and stop it, and wait.
START, STOP = signal.SIGRTMIN + 1, signal.SIGRTMIN + 2
# Signals of others are passed on. All except the last request the end.
_PASSED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)
# Those that a terminal sends to all of its processes, and how the kernel marks them (sigaction(2)).
_TYPED, _BY_KERNEL = (signal.SIGINT, signal.SIGQUIT), 0x80
_STATE, _WATCHDOGS, _LOCK = "state.json", "watchdogs", "lock"
# Bytes of the state, so that a new one fits into the file of the one before on a full disk.
_SIZE = 4096
# Seconds that a minion which is restarted has to end, between two starts of the watchdog, and
# between two checks.
_PATIENCE = 90.0
_INTERVAL = 60.0
_LOOK = 0.5
# With these the minion stays with nobody: it goes into the background, or answers and ends. Salt
# takes the begin of a long name for the name, and several letters behind one hyphen.
_NAMES = ("--daemon", "--version", "--versions-report", "--help")
_LETTERS, _WITH_VALUE = "dVh", "clu"
_PR_SET_PDEATHSIG = 1


class Keeper:
    """The parent of one minion."""

    def __init__(self, arguments: list[str], umask: int) -> None:
        self._arguments = arguments
        self._umask = umask
        # Signals that the caller has ignored, as with nohup, are ignored here and by the minion.
        heard = (each for each in _PASSED if signal.getsignal(each) is not signal.SIG_IGN)
        self._taken = {START, STOP, signal.SIGCHLD, *heard}
        self._mask: set[Any] = set()
        self._pid = 0
        self._invocation = ""
        self._status = 0
        # How the minion is, if that is not written down yet.
        self._untold = ""
        # The next action after the end of the minion, and the deadline for that end.
        self._again = self._ends = False
        self._deadline = self._watched = 0.0

    def run(self) -> int:
        """Keep the minion; return the exit status at the end."""
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        self._start()
        while not self._over():
            self._watch()
            if self._untold:
                self._tell(self._untold)
            # Sleep until something is due: the end of a minion is a signal, too.
            calm = self._pid and not self._deadline
            found = signal.sigtimedwait(self._taken, _INTERVAL if calm else _LOOK)
            # The minion has what was typed already: a second one would cut its end short.
            if found is not None:
                typed = found.si_signo in _TYPED and found.si_code == _BY_KERNEL
                self._take(found.si_signo, to_minion=not typed)
            self._reap()
            self._kill_if_late()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(DIRECTORY, _STATE))
        return self._status

    def _over(self) -> bool:
        """Tell whether nothing will start the minion again: no update is under way."""
        return not self._pid and (self._ends or not _watchdogs())

    def _take(self, number: int, *, to_minion: bool) -> None:
        if number == START and not self._ends:
            if self._pid:
                self._again = True
                self._stop()
            else:
                self._start()
        elif number == STOP:
            self._again = False
            self._stop()
        elif number in _PASSED:
            self._ends = self._ends or number != signal.SIGUSR1
            if self._pid and to_minion:
                os.kill(self._pid, number)

    def _stop(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGTERM)
            self._deadline = self._deadline or time.monotonic() + _PATIENCE
            self._tell("deactivating")

    def _kill_if_late(self) -> None:
        if self._pid and self._deadline and time.monotonic() > self._deadline:
            # The processes below it then end by themselves.
            os.kill(self._pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Reap all ended processes: the first process of a container gets orphans, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._pid:
                self._ended(os.waitstatus_to_exitcode(status))

    def _ended(self, status: int) -> None:
        self._pid, self._deadline = 0, 0.0
        # A shell shows death by a signal in the same way.
        self._status = status if status >= 0 else 128 - status
        if self._again and not self._ends:
            self._start()
        else:
            self._tell("failed" if status else "inactive")

    def _start(self) -> None:
        self._again, self._invocation = False, uuid.uuid4().hex
        programs = _programs()
        # During an update, a broken slot must be visible.
        programs = programs[:1] if _watchdogs() else programs
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            os.umask(self._umask)
            _become(programs, self._arguments, parent, self._mask)
        self._tell("active")

    def _tell(self, active: str) -> None:
        """Write down the state of the minion, for processes that update it."""
        told = {
            "keeper": _identity(os.getpid()),
            "pid": self._pid,
            "active": active,
            "invocation": self._invocation,
            "status": self._status,
            "slot": ACTIVE,
            "before": BEFORE,
            "arguments": self._arguments,
        }
        path = os.path.join(DIRECTORY, _STATE)
        before, self._untold = self._untold, ""
        try:
            os.makedirs(DIRECTORY, mode=0o755, exist_ok=True)
            _write(path, json.dumps(told).ljust(_SIZE))
        except OSError as err:
            # Until that file is written, it cannot be updated, but it runs.
            self._untold = active
            if not before:
                print(f"{path} cannot be written: {err}", file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _watch(self) -> None:
        """Start the supervisor of an update under way, now and every minute."""
        now = time.monotonic()
        if not self._watched or now >= self._watched + _INTERVAL:
            self._watched = now
            for argv in _watchdogs():
                _detach(argv, self._mask)


def _write(path: str, text: str) -> None:
    """Write a file at once; on a disk that is full, into the file that is there."""
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.new", path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.new")
        with open(path, "r+", encoding="utf-8") as file:
            file.write(text)
            file.truncate()


def _watchdogs() -> list[list[str]]:
    """Return the programs to start while an update is under way; otherwise nothing."""
    place = os.path.join(os.path.dirname(DIRECTORY), _WATCHDOGS)
    try:
        found = [_argv(os.path.join(place, name)) for name in os.listdir(place)]
    except OSError:
        return []
    return [argv for argv in found if argv and _is_there(argv)]


def _is_there(argv: list[str]) -> bool:
    """Tell whether the program can be started, and all files are there that it is started with."""
    paths = [each for each in argv[1:] if os.path.isabs(each)]
    return os.access(argv[0], os.X_OK) and all(map(os.path.exists, paths))


def _programs() -> list[str]:
    """Return what the minion can be started with, the first choice first."""
    return [each for each in (ACTIVE, BEFORE) if os.access(each, os.X_OK)]


def _argv(path: str) -> list[str]:
    """Return the command of a watchdog; nothing if another user may have written it."""
    if not path.endswith(".json") or os.path.basename(path).startswith("."):
        return []
    try:
        with open(path, encoding="utf-8") as file:
            seen = os.fstat(file.fileno())
            if seen.st_uid != os.geteuid() or stat.S_IMODE(seen.st_mode) & 0o022:
                return []
            argv = json.load(file)["argv"]
    except (OSError, ValueError, LookupError, TypeError):
        return []
    return [str(each) for each in argv] if isinstance(argv, list) else []


def _become(programs: list[str], arguments: list[str], parent: int, mask: set[Any]) -> None:
    try:
        # Without its keeper, there would be two minions after the next start by somebody.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() == parent:
            # Python ignores these, and a program would inherit that.
            for each in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(each, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for program in programs:
                try:
                    os.execv(program, [program, *arguments])  # noqa: S606 (no shell)
                except OSError as err:
                    print(f"{program} cannot be started: {err}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _detach(argv: list[str], mask: set[Any]) -> None:
    """Start a program that outlives this one."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        os.setsid()
        if not os.fork():
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            os.execv(argv[0], argv)  # noqa: S606 (no shell)
    finally:
        os._exit(127)


def _identity(pid: int) -> str:
    """Return a name that no other process ever has, like the supervisor's function."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return f"{boot}:{pid}:{file.read().rpartition(')')[2].split()[19]}"


def _stays(arguments: list[str]) -> bool:
    """Tell whether a minion with these arguments runs in the foreground."""
    is_value = False
    for each in arguments:
        name, is_long = each.partition("=")[0], each.startswith("--")
        if is_value:
            is_value = False
        elif is_long and len(name) > 2 and any(known.startswith(name) for known in _NAMES):
            return False
        elif each.startswith("-") and not is_long:
            for place, letter in enumerate(each[1:], 2):
                if letter in _LETTERS:
                    return False
                if letter in _WITH_VALUE:
                    is_value = place == len(each)
                    break
    return True


def _is_the_one() -> bool:
    """Take the place of the one keeper of this minion; tell whether no other one has it."""
    try:
        os.makedirs(DIRECTORY, mode=0o755, exist_ok=True)
        lock = os.open(os.path.join(DIRECTORY, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        # Held until this process ends.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Then its state cannot be written either, and is told not to be.
        return True
    return True


def main(arguments: list[str]) -> int:
    """Keep the minion. A program that it cannot stay with replaces this process."""
    stays = _stays(arguments)
    # Nobody else may write what is made here, whatever the minion is started with.
    umask = os.umask(0o022)
    if stays and _is_the_one():
        return Keeper(arguments, umask).run()
    os.umask(umask)
    if stays:
        print("Its keeper runs already: this one is started without.", file=sys.stderr, flush=True)
    for program in _programs():
        try:
            os.execv(program, [program, *arguments])  # noqa: S606 (no shell)
        except OSError as err:
            print(f"{program} cannot be started: {err}", file=sys.stderr, flush=True)
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
