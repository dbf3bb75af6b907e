"""A real salt-master for the lab, from a host venv in a container's network."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from devtools import as_packaged, venvs
from devtools.command import REPO, ToolError, check_stopping, end, kill_group
from devtools.lab.container import Lab, Network

START_TIMEOUT = 240.0
REPLY_TIMEOUT = 240.0
# How many times longer than on a quiet machine anything may take: others may use the machine.
SLOWEST = 4.0
# Seconds between two looks at a condition, and how many times longer to rest than a look takes.
POLL_INTERVAL = 0.05
POLL_REST = 4.0
LOG_TAIL = 4000
# A master's data about its minions and their jobs, and its files for them.
KNOWN = ("srv", "pillar", "cache/jobs", "cache/minions", "cache/file_lists", "cache/roots")
# The directories of its user.
# In the last one are what Salt keeps nowhere else: queues and tokens.
OWN = ("pki", "cache", "sock", "logs", "ext", "var")
KEYS = ("minions", "minions_pre", "minions_denied", "minions_rejected")
# A process of a master collects grains up to four times, which is most of its start.
GRAINS_ONCE: Mapping[str, Any] = {"grains_cache": True, "grains_cache_expiration": 86400}


@dataclass(frozen=True)
class Event:
    """An event of the master's bus, with the time it was seen."""

    time: float
    tag: str
    data: dict[str, Any]


class NothingPublished(ToolError):
    """The target matches no minion of the master."""


class Master:
    """A master that accepts every key; jobs go out through one long-lived client process."""

    @classmethod
    def take(
        cls,
        lab: Lab,
        version: str = venvs.NEWEST,
        *,
        config: Mapping[str, Any] | None = None,
        pythonpath: Path | None = None,
    ) -> Master:
        """
        Return a master in a network that nobody else uses, until it is given back.

        A start takes five seconds of a processor, so a master that an earlier scene has given back
        is used again, unless it has engines, which keep data, or an address of its own.
        """
        use = (version, json.dumps(dict(config or {}), sort_keys=True), pythonpath)
        with contextlib.suppress(KeyError, IndexError):
            found = lab.spare[use].pop()
            assert isinstance(found, Master)
            return found
        made = cls(Network(lab), version, config=config, pythonpath=pythonpath)
        made._use = None if {"engines", "interface"} & set(config or {}) else use
        made._owns_network = True
        return made

    def __init__(
        self,
        network: Network,
        version: str = venvs.NEWEST,
        *,
        config: Mapping[str, Any] | None = None,
        pythonpath: Path | None = None,
    ) -> None:
        self.network = network
        self._use: object = None
        self._owns_network = False
        self.venv = venvs.series(network.lab.cache.cache, version)
        self.dir = network.lab.run_dir.path / f"ms{network.lab.run_dir.number()}"
        self.files = self.dir / "srv"
        self.files.mkdir(parents=True)
        self.events: list[Event] = []
        self._pythonpath = pythonpath
        self._numbers = itertools.count(1)
        self._request = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self._client: subprocess.Popen[str] | None = None
        settings = {
            "user": as_packaged.USER,
            "root_dir": str(self.dir),
            "pki_dir": str(self.dir / "pki"),
            "cachedir": str(self.dir / "cache"),
            "sock_dir": str(self.dir / "sock"),
            "log_file": str(self.dir / "logs" / "master"),
            "log_level_logfile": "info",
            "pidfile": str(self.dir / "sock" / "pid"),
            "interface": "127.0.0.1",
            "auto_accept": True,
            "worker_threads": 2,
            "timeout": 15,
            "file_roots": {"base": [str(self.files)]},
            "pillar_roots": {"base": [str(self.dir / "pillar")]},
            "extension_modules": str(self.dir / "ext"),
            "con_cache": False,
            **GRAINS_ONCE,
            **(config or {}),
        }
        (self.dir / "pillar").mkdir()
        (self.dir / "master").write_text(json.dumps(settings, indent=1))

    def __enter__(self) -> Master:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Master:
        """Start master, event listener and client; return when all three answer."""
        if self._processes:
            return self
        # As the packages do. Its configuration and its files for minions are root's.
        as_packaged.give(*(self.dir / name for name in OWN))
        deadline = time.monotonic() + START_TIMEOUT
        log = (self.dir / "console").open("a")
        command = [str(self.venv / "bin" / "salt-master"), "-c", str(self.dir), "-l", "warning"]
        self._start(command, stdout=log.fileno())
        sockets = [self.dir / "sock" / f"{s}.ipc" for s in ("master_event_pub", "publish_pull")]
        while not all(socket.exists() for socket in sockets):
            self._check(deadline)
            time.sleep(0.05)
        self._client, events = self._driver(log.fileno())
        assert self._client.stdout is not None
        for stream in (events, self._client.stdout):
            self._read(stream)
        threading.Thread(target=self._listen, args=(events,), daemon=True).start()
        while not self._answers():
            self._check(deadline)
        return self

    def stop(self) -> None:
        """End master and helpers; the job cache stays readable until the run ends."""
        for process in reversed(self._processes):
            end(process, grace=0.5 if process is not self._processes[0] else 3)
        self._processes.clear()
        # It may be started with other settings now.
        self._use = None

    def kill(self) -> None:
        """End master and helpers as a power cut does; what is on its disk stays."""
        for process in reversed(self._processes):
            kill_group(process)
            process.wait()
        self._processes.clear()
        self._use = None

    def give_back(self, *, usable: bool = True) -> None:
        """Leave a taken master to the next scene, which finds no trace of this one."""
        if usable and self._use is not None and self._processes:
            use = self._use
            self._clear()
            self.network.lab.spare.setdefault(use, []).append(self)
            return
        self.stop()
        if self._owns_network:
            self.network.close()

    # -- requests ------------------------------------------------------------------------

    def publish(
        self,
        function: str | list[str],
        *args: Any,
        target: str = "*",
        tgt_type: str = "glob",
        jid: str = "",
        **kwargs: Any,
    ) -> str:
        """Publish a job without waiting, of one function or of several; return its JID."""
        reply = self.ask(
            "publish",
            target=target,
            tgt_type=tgt_type,
            function=function,
            args=args,
            kwargs=kwargs,
            jid=jid,
        )
        if not reply.get("jid"):
            raise NothingPublished(f"the master published nothing for {function}: {reply}")
        return str(reply["jid"])

    def call(self, function: str, *args: Any, minion: str, timeout: float = 60, **kw: Any) -> Any:
        """Publish a job to one minion and return its return."""
        jid = self.publish(function, *args, target=minion, tgt_type="list", **kw)
        return self.wait_return(jid, minion, timeout)["return"]

    def runner(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """Run a runner function inside the client process and return its result."""
        return self.ask("runner", function=function, args=args, kwargs=kwargs, _timeout=600)[
            "return"
        ]

    def returns(self, jid: str) -> dict[str, Any]:
        """Return ``{minion: return}`` from the master's job cache."""
        return dict(self.ask("returned", jid=jid)["returns"])

    def fire(self, tag: str, data: dict[str, Any]) -> None:
        self.ask("fire", tag=tag, data=data)

    def ask(
        self, action: str, *, _timeout: float = REPLY_TIMEOUT, **request: Any
    ) -> dict[str, Any]:
        """Send one request to the client process and return its reply."""
        client = self._client
        if client is None or client.stdin is None or client.stdout is None:
            raise ToolError("the master is not running: call start() first")
        with self._request:
            number = next(self._numbers)
            client.stdin.write(json.dumps({"id": number, "do": action, **request}) + "\n")
            client.stdin.flush()
            reply = self._read(client.stdout, _timeout)
        if "error" in reply:
            raise ToolError(f"{action} {request}: {reply['error']}")
        return reply

    # -- waiting -------------------------------------------------------------------------

    def returned(self, jid: str, minion: str) -> Event | None:
        """Return the event of a job's return if it has been seen."""
        wanted = f"salt/job/{jid}/ret/{minion}"
        return next((event for event in list(self.events) if event.tag == wanted), None)

    def wait_return(self, jid: str, minion: str, timeout: float = 60) -> dict[str, Any]:
        found = self.wait(lambda: self.returned(jid, minion), timeout, f"return of {jid}")
        return dict(found.data)

    def wait_event(self, tag: str, timeout: float = 60, *, since: float = 0.0) -> Event:
        """Wait for an event whose tag begins with *tag*, seen after *since*."""

        def find() -> Event | None:
            seen = list(self.events)
            return next((e for e in seen if e.tag.startswith(tag) and e.time >= since), None)

        found: Event = self.wait(find, timeout, f"event {tag}")
        return found

    def wait_minion(self, minion: str, timeout: float = 60) -> float:
        """Ping until *minion* answers; return how long that took."""
        began = time.monotonic()
        sent: list[str] = []

        def answered() -> bool:
            try:
                sent.append(self.publish("test.ping", target=minion, tgt_type="list"))
            except NothingPublished:
                return False
            limit = time.monotonic() + 1
            while time.monotonic() < limit:
                if any(self.returned(jid, minion) for jid in sent):
                    return True
                time.sleep(0.02)
            return False

        self.wait(answered, timeout, f"minion {minion} to answer")
        return time.monotonic() - began

    def wait(self, condition: Callable[[], Any], timeout: float, what: str) -> Any:
        """
        Poll until *condition* gives something true and return that.

        *timeout* is the most that it may take on a quiet machine, in seconds.
        """
        timeout *= SLOWEST
        deadline = time.monotonic() + timeout
        while True:
            began = time.monotonic()
            if found := condition():
                return found
            check_stopping()
            if time.monotonic() > deadline:
                raise ToolError(f"waited {timeout:g} s without success for {what}\n{self.log()}")
            # Looking must only take a small part of a processor.
            time.sleep(max(POLL_INTERVAL, POLL_REST * (time.monotonic() - began)))

    def log(self) -> str:
        parts = []
        for name in ("console", "logs/master"):
            path = self.dir / name
            text = path.read_text(errors="replace") if path.exists() else ""
            parts.append(f"==== master {name} ====\n{text[-LOG_TAIL:]}")
        return "\n".join(parts)

    # -- inner workings ------------------------------------------------------------------

    def _clear(self) -> None:
        """Forget the minions, their jobs and their files. Its minions have to be gone."""
        for name in (*KNOWN, *(f"pki/{keys}" for keys in KEYS)):
            folder = self.dir / name
            for path in folder.iterdir() if folder.exists() else ():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        mark = f"lab/cleared/{next(self._numbers)}"
        self.fire(mark, {})
        self.wait_event(mark)
        self.events = []

    def command(self, *argv: str) -> list[str]:
        """Return how its Python runs a program as its user."""
        return as_packaged.as_user([venvs.python(self.venv), *argv])

    def _start(
        self,
        argv: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int,
        stderr: int = subprocess.STDOUT,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[str]:
        env = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "SALT"))
        }
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        if self._pythonpath:
            env["PYTHONPATH"] = str(self._pythonpath)
        process = self.network.popen(
            self.command(*argv),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            pass_fds=pass_fds,
        )
        self._processes.append(process)
        return process

    def _driver(self, log: int) -> tuple[subprocess.Popen[str], IO[str]]:
        """Start client and event listener; return the client, and the stream of events."""
        events, out = os.pipe()
        argv = [str(REPO / "devtools" / "driver.py"), str(self.dir / "master"), str(out)]
        try:
            process = self._start(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, pass_fds=[out]
            )
        finally:
            os.close(out)
        return process, open(events, errors="replace")

    def _answers(self) -> bool:
        """Return whether the master accepts publications; this one matches no minion."""
        try:
            self.ask("publish", target=[], tgt_type="list", function="test.ping")
        except ToolError:
            time.sleep(0.1)
            return False
        return True

    def _check(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise ToolError(f"the master does not come up\n{self.log()}")
        for process in self._processes:
            if process.poll() is not None:
                raise ToolError(f"the master ended with {process.returncode}\n{self.log()}")

    def _read(self, stream: IO[str], timeout: float = REPLY_TIMEOUT) -> dict[str, Any]:
        """Read one line; a timer ends the helper if it does not answer."""
        assert self._client is not None
        watchdog = threading.Timer(timeout, kill_group, [self._client])
        watchdog.start()
        try:
            line = stream.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise ToolError(f"the master's helper gave no answer in {timeout:g} s\n{self.log()}")
        return dict(json.loads(line))

    def _listen(self, events: IO[str]) -> None:
        with events:
            for line in events:
                event = json.loads(line)
                self.events.append(Event(event["time"], event["tag"], event["data"]))
