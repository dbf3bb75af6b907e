"""A real minion in processes of its own, with everything that it writes below one directory."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from saltext_safeupdate.core import settings
from saltext_safeupdate.minion import queues
from tests.support.waiting import wait_for

PROGRAM = "from salt.scripts import salt_minion; salt_minion()"
# What makes a command of a job a line of the shell.
SHELL = [{"__kwarg__": True, "python_shell": True}]
# A busy machine takes its time.
_TIMEOUT = 240
# Without these, the superuser is a user like any other to the files of others.
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2
_CLONE_NEWNS, _PRIVATE = 0x20000, (1 << 18) | (1 << 14)


class RealMinion:
    """Its jobs each write a word into a file; so do its startup states."""

    # What is done in its process before it starts, and how the process begins.
    prepare = None
    wrapper: tuple[str, ...] = ()

    def __init__(self, path, *, etc="etc", **options):
        self.path = Path(path)
        self.etc = self.path / etc
        self._process = None
        self.notes_file = self.path / f"notes-{etc}"
        self.environment = dict(os.environ)
        # Runs before Salt is imported.
        self.prelude = ""
        self.config = {
            "id": "alone",
            "user": "root",
            "root_dir": str(self.path / "root"),
            # The path of a socket has to be short.
            "sock_dir": str(self.path / "s"),
            "startup_states": "sls",
            "sls_list": ["start"],
            "module_executors": ["safeupdate", "direct_call"],
            "engines": [{"safeupdate": {}}],
            "loop_interval": 0.2,
            "enable_fqdns_grains": False,
            "log_level_logfile": "info",
            "notes": str(self.notes_file),
            **options,
        }
        self.config["safeupdate"] = {
            "tick_interval": 0.2,
            # That of a host, which others look into.
            "registry_dir": str(self.path / "registry"),
            **self.config.get("safeupdate", {}),
        }
        self.etc.mkdir(parents=True)

    def start(self, **options):
        """Start it, with *options* besides those that it has."""
        config = self.etc / "minion"
        config.write_text(yaml.safe_dump({**self.config, **options}))
        config.chmod(0o644)
        self._process = subprocess.Popen(
            [
                *(*self.wrapper, sys.executable, "-c", self.prelude + PROGRAM),
                *("-c", str(self.etc), "-l", "quiet"),
            ],
            start_new_session=True,
            preexec_fn=self.prepare,  # noqa: PLW1509
            env=self.environment,
        )

    def kill(self):
        """Kill it and all that it has started."""
        if self._process is not None:
            group = self._process.pid
            # It may have ended by itself.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            self._process.wait()
            self._process = None
            # Until all are reaped, Salt takes the one before for running.
            wait_for(lambda: not _exists(group), "the end of its processes")

    def has_ended(self):
        """Tell whether its first process has ended."""
        return self._process.poll() is not None

    @property
    def pid(self):
        return self._process.pid

    @property
    def id(self):
        return self.config["id"]

    @property
    def settings(self):
        """Return the settings that are in effect for it."""
        opts = {**self.config, "conf_file": str(self.etc / "minion")}
        return settings.of_minion(opts)[0]

    @property
    def opts(self):
        """What names its queues."""
        cache = self.path / "root" / "var" / "cache" / "salt" / "minion"
        return {"cachedir": str(self.config.get("cachedir", cache)), "master": "salt"}

    def queued(self):
        """Return the JIDs of the jobs in its queues."""
        return queues.jids(self.opts)

    def noting(self, word):
        return f"echo {word} >> {self.notes_file}"

    def notes(self, word):
        """Return how often a word was written."""
        if not self.notes_file.exists():
            return 0
        return self.notes_file.read_text().split().count(word)

    def wait_for(self, word, times):
        try:
            wait_for(lambda: self.notes(word) >= times, f"{word}, {times} times", _TIMEOUT)
        except BaseException:
            print(self.log())
            raise
        assert self.notes(word) == times

    def log(self):
        path = self.path / "root" / "var" / "log" / "salt" / "minion"
        path = Path(self.config.get("log_file", path))
        return path.read_text() if path.exists() else ""


def startup(path):
    """Write the SLS that has a minion write a word at each start."""
    path.mkdir(parents=True, exist_ok=True)
    noted = {"noted": {"cmd.run": [{"name": "echo startup >> {{ opts['notes'] }}"}]}}
    (path / "start.sls").write_text(yaml.safe_dump(noted))


def _exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def humble():
    """Take from this process what lets the superuser write where others own the directory."""
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        if ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            os._exit(70)


def mounted(place, options):
    """Return what mounts an empty file system of its own for a process and its children."""

    def mount():
        libc = ctypes.CDLL(None)
        if (
            libc.unshare(_CLONE_NEWNS)
            or libc.mount(b"none", b"/", None, _PRIVATE, None)
            or libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, options.encode())
        ):
            os._exit(71)

    return mount
