"""A real minion without a master, with everything that it writes below one directory."""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from saltext_safeupdate.minion import queues
from tests.support.waiting import wait_for

PROGRAM = "from salt.scripts import salt_minion; salt_minion()"
# Without these, the superuser is a user like any other to the files of others.
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2
# A busy machine takes its time.
_TIMEOUT = 240


def _exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class Masterless:
    """
    Its startup states, its schedule and its queued jobs each write a word into a file.

    With *humble* it may not write where others own the directory, as if it did not run as root.
    """

    def __init__(self, path, *, humble=False, safeupdate=None, **options):
        self.path = Path(path)
        self.humble = humble
        self._process = None
        self.notes_file = self.path / "notes"
        self.safeupdate = {
            "state_dir": str(self.path / "state"),
            "run_dir": str(self.path / "locks"),
            "tick_interval": 0.2,
            **(safeupdate or {}),
        }
        self.config = {
            "id": "alone",
            "user": "root",
            "root_dir": str(self.path / "root"),
            # The path of a socket has to be short.
            "sock_dir": str(self.path / "s"),
            "master_type": "disable",
            "file_client": "local",
            "file_roots": {"base": [str(self.path / "srv")]},
            "startup_states": "sls",
            "sls_list": ["start"],
            "module_executors": ["safeupdate", "direct_call"],
            "engines": [{"safeupdate": {}}],
            "safeupdate": self.safeupdate,
            "loop_interval": 0.2,
            "enable_fqdns_grains": False,
            "log_level_logfile": "info",
            **options,
        }
        for name in ("etc", "srv"):
            (self.path / name).mkdir(parents=True)
        start = {"noted": {"cmd.run": [{"name": f"echo startup >> {self.notes_file}"}]}}
        (self.path / "srv" / "start.sls").write_text(yaml.safe_dump(start))

    def start(self, **options):
        """Start it, with *options* besides those that it has."""
        (self.path / "etc" / "minion").write_text(yaml.safe_dump({**self.config, **options}))
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "-c", str(self.path / "etc"), "-l", "quiet"],
            start_new_session=True,
            preexec_fn=_drop if self.humble else None,  # noqa: PLW1509
        )

    def kill(self):
        """Kill it and all that it has started."""
        if self._process is not None:
            group = self._process.pid
            os.killpg(group, signal.SIGKILL)
            self._process.wait()
            self._process = None
            # Until all are reaped, Salt takes the one before for running.
            wait_for(lambda: not _exists(group), "the end of its processes")

    @property
    def opts(self):
        """What names its queues."""
        cache = self.path / "root" / "var" / "cache" / "salt" / "minion"
        return {"cachedir": str(cache), "master": "salt"}

    def queue(self, jid, word):
        """Put a job into its queue that writes a word."""
        job = {"jid": jid, "fun": "cmd.run", "arg": [self.noting(word), *SHELL], "ret": ""}
        queues.put(self.opts, job)

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
        return path.read_text() if path.exists() else ""


SHELL = [{"__kwarg__": True, "python_shell": True}]


def scheduled(minion_path):
    """Return a schedule that writes a word every second."""
    word = f"echo scheduled >> {minion_path / 'notes'}"
    job = {"function": "cmd.run", "args": [word], "kwargs": {"python_shell": True}, "seconds": 1}
    return {"note": {**job, "return_job": False}}


def _drop():
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            os._exit(70)
