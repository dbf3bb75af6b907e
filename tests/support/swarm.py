"""
Hundreds of minions in one thread: real keys, channels and publications, simulated hosts.

Each signs in, hears, decrypts and returns with Salt's own channels; who is meant is decided by
Salt's own matchers. Only what a job does is a fake: each minion has a host, which takes its time,
breaks, hangs, is away or lies, as the simulated fleets have it.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import salt.channel.client
import salt.config
import salt.crypt
import salt.loader
import salt.utils.asynchronous

from saltext_safeupdate.core.jobs.meant import AWAY, MISSED, about
from saltext_safeupdate.fleet.judge import Report
from tests.support.raw_minion import QUERY
from tests.support.waiting import wait_for
from tests.unit.fleet.world import Host

# Seconds between two looks at what the hosts are doing.
_STEP = 0.1
# Open files of one minion: its sockets, and what ZeroMQ needs for them.
_FILES = 40
# Connections on which all of them send.
_LINES = 8
# Phases in which a request can still be taken back.
_EARLY = ("requested", "waiting")


@dataclass
class Machine(Host):
    """
    A host as the simulated fleets have it, and what only a real master notices.

    waits
        Seconds until it begins to install; until then a request can be withdrawn.
    restarts
        Seconds at the end of an update in which it hears nothing.
    late
        Seconds that each answer takes, at most. *twice*: answers come twice.
    mute
        It runs what it hears and returns nothing of it.
    heard, ran, missed
        How often it heard, ran and missed a job, by JID. It runs each once, as a ledger has it.
        It missed what came in a restart; if a message was lost, nobody knows.
    """

    waits: float = 0.0
    restarts: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    mute: bool = False
    up: bool = True
    heard: Counter[str] = field(default_factory=Counter)
    ran: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)

    def there(self, now: float) -> bool:
        """Tell whether it hears anything."""
        if self.phase == "installing" and self.restarts and self.ends != "hangs":
            left = self.began + self.takes - now
            if 0 < left <= self.restarts:
                return False
        return self.up and super().there(now)

    def withdraw(self, number: int, now: float) -> str:
        if number < self.number:
            return "a newer request is known"
        if self.phase == "installing" and now - self.began < self.waits:
            self.phase = "cancelled"
        self.number = number
        return ""

    def told_phase(self, now: float) -> str:
        """Return the phase that it tells of."""
        if self.phase == "installing" and now - self.began < self.waits:
            return "waiting"
        return "installing" if self.phase == "hangs" else self.phase

    def answer(self, question: int, now: float, refused: str = "") -> dict[str, object]:
        report = asdict(self.report(question, refused)) | {"phase": self.told_phase(now)}
        return _surface(report, self)

    def lie(self, question: int, dice: random.Random) -> dict[str, object]:
        """Return what a minion may say of itself that is not so."""
        report = Report(
            minion=self.name,
            question=dice.choice((question, question + 1000, -1)),
            number=dice.choice((0, self.number, self.number * 2)),
            phase=dice.choice(("committed", "rolled_back", "nonsense", "")),
            version=dice.choice((*self.goal, self.version, "")),
            refused=dice.choice(("", "no")),
        )
        return _surface(asdict(report), self)


def _surface(report: dict[str, object], host: Host) -> dict[str, object]:
    """Return a report as the function ``safeupdate.report`` gives it."""
    report.pop("minion")
    version = report["version"]
    return report | {
        "running": version,
        "installed": version,
        "intended": host.goal[0],
        "extension_on_disk": report["extension"],
        "build": "1",
        "way": "apt",
        "last_result": host.phase if host.number else "",
        "quarantined": [],
        "problems": [],
    }


class Swarm:
    """
    The minions of these hosts, on one thread; use it as a context manager.

    *master* are the options of the master. *seed* decides what is lost and when it comes.
    With *keeps*, they send a return until the master has taken it. *ran_to* is a file that gets a
    line for each job that one of them runs: its name, and the JID.
    *most_busy* is how many hosts were really away for an update at once, those that hang or have
    failed included. *heard* and *sent* count messages by function.
    """

    def __init__(
        self,
        master: Mapping,
        hosts: Iterable[Machine],
        path: Path,
        seed: int = 0,
        *,
        keeps: bool = False,
        ran_to: Path | None = None,
    ):
        self.keeps, self.ran_to = keeps, ran_to and ran_to.open("a", buffering=1)
        self.hosts = {host.name: host for host in hosts}
        self.random = random.Random(seed)
        self.began = time.monotonic()
        self.heard: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.failed: list[str] = []
        self.most_busy = 0
        self.lost = 0
        _raise_limit(len(self.hosts) * _FILES)
        self._opts = _options(master, path)
        self._thread = threading.Thread(target=self._run, name="swarm", daemon=True)
        self._started = threading.Event()

    def __enter__(self) -> Swarm:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.add_callback(self._loop.spawn_callback, self._close)
        self._thread.join()

    # -- for tests -----------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Return the seconds since the swarm began, by which the hosts live."""
        return time.monotonic() - self.began

    def wait_until_up(self) -> None:
        """Wait until all have signed in and subscribed."""
        wait_for(lambda: self.up() == len(self.hosts) or self.failed, "the swarm is up")
        assert not self.failed, self.failed[:3]

    def up(self) -> int:
        return sum(minion.connected for minion in self.minions.values())

    def away(self, names: Iterable[str], *, gone: bool) -> None:
        """Have minions restart: they hear nothing, or hear again and say so."""
        for name in names:
            self.hosts[name].up = not gone

    def ran(self, jid: str) -> set[str]:
        """Return who has run a job."""
        return {name for name, host in self.hosts.items() if host.ran[jid]}

    def most_heard(self, jid: str) -> int:
        """Return how often a job was published to the minion that heard it most often."""
        return max(host.heard[jid] for host in self.hosts.values())

    def busy(self) -> list[str]:
        """Return who is away for an update. One that lies is as much away as it likes."""
        return [host.name for host in self.hosts.values() if host.busy and not host.lies]

    # -- on the thread -------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        self._loop = _io_loop()
        self.matchers = salt.loader.matchers(self._opts)
        # Minions may have the same key. To load it takes longer than anything else they do.
        # On Salt 3006 whoever loads it signs in, so it is one of them.
        first = {**self._opts, "id": next(iter(self.hosts))}
        key = salt.crypt.AsyncAuth(first, io_loop=self._loop).get_keys()
        self._lines = [salt.transport.request_client(self._opts, self._loop) for _ in range(_LINES)]
        self.minions = {
            host.name: _Minion(self, host, self._opts, self._loop, key, line)
            for host, line in zip(self.hosts.values(), itertools.cycle(self._lines), strict=False)
        }
        signing_in = iter(self.minions.values())
        for _ in range(_LINES):
            self._loop.spawn_callback(_connect, signing_in)
        self._loop.call_later(_STEP, self._live)
        self._loop.add_callback(self._started.set)
        self._loop.start()
        self._loop.close(all_fds=False)

    def _live(self) -> None:
        now = self.now
        for name, host in self.hosts.items():
            host.live(now)
            self.minions[name].look(now)
        self.look()
        self._loop.call_later(_STEP, self._live)

    def look(self) -> None:
        """Note how many are busy; called whenever one becomes it."""
        self.most_busy = max(self.most_busy, len(self.busy()))

    async def _close(self) -> None:
        for minion in self.minions.values():
            minion.close()
        for line in self._lines:
            # 3008 has a way to wait for what is still on its way.
            if hasattr(line, "close_async"):
                await line.close_async()
            else:
                line.close()
        if self.ran_to:
            self.ran_to.close()
        self._loop.stop()


async def _connect(minions: Iterator[_Minion]) -> None:
    """Have them sign in, one after the other: all at once would keep a busy master from all."""
    for minion in minions:
        await minion.connect()


class _Minion:
    """One minion: its channels, and the host that it stands for."""

    def __init__(
        self, swarm: Swarm, host: Machine, opts: dict, loop: object, key: object, line: object
    ) -> None:
        self._swarm, self._host, self._loop = swarm, host, loop
        self._opts = {**opts, "id": host.name, "grains": {**opts["grains"], "id": host.name}}
        auth = salt.crypt.AsyncAuth(self._opts, io_loop=loop)
        auth._private_key = key
        self._channel = salt.channel.client.AsyncReqChannel(self._opts, line, auth)
        self._listening = None
        self.connected = False
        self._there = True

    async def connect(self) -> None:
        try:
            self._listening = salt.channel.client.AsyncPubChannel.factory(
                self._opts, io_loop=self._loop
            )
            await self._listening.connect()
            _wait_for_ever(self._listening.transport)
            self._listening.on_recv(self._heard)
        except Exception as err:  # noqa: BLE001 - the test shows it
            self._swarm.failed.append(f"{self._host.name}: {err!r}")
            return
        await self._start_event()
        self.connected = True

    def close(self) -> None:
        self._listening.on_recv(None)
        self._listening.close()

    def look(self, now: float) -> None:
        """Say that it has started if it is back."""
        there = self._host.there(now)
        if there and not self._there:
            self._loop.spawn_callback(self._start_event)
        self._there = there

    def _heard(self, payload: Mapping) -> object:
        load = payload["load"]
        if self._is_meant(load):
            self._run(load)
        return _Nothing()

    def _is_meant(self, load: Mapping) -> bool:
        kind = load.get("tgt_type", "glob")
        match = self._swarm.matchers[f"{kind}_match.match"]
        more = {"delimiter": load["delimiter"]} if "delimiter" in load else {}
        return bool(match(load["tgt"], opts=self._opts, **more))

    def _run(self, load: Mapping) -> None:
        swarm, host, now = self._swarm, self._host, self._swarm.now
        jid, fun = load["jid"], load["fun"]
        there = host.there(now)
        host.missed[jid] += not there
        if not there or swarm.random.random() < host.loses:
            swarm.lost += 1
            return
        swarm.heard[fun] += 1
        host.heard[jid] += 1
        if fun not in ANSWERS and host.ran[jid]:
            return
        host.ran[jid] += 1
        if swarm.ran_to and fun not in ANSWERS:
            swarm.ran_to.write(f"{host.name} {jid}\n")
        args, kwargs = _arguments(load["arg"])
        answers = [ANSWERS.get(fun, _other)(host, now, *args, **kwargs)]
        swarm.look()
        if host.lies and fun in LIES:
            answers.append(host.lie(_question(args, kwargs), swarm.random))
        answers *= 2 if swarm.random.random() < host.twice else 1
        swarm.random.shuffle(answers)
        for answer in answers:
            delay = swarm.random.uniform(0, host.late)
            self._loop.call_later(delay, self._loop.spawn_callback, self._return, load, answer)

    async def _return(self, load: Mapping, answer: object) -> None:
        host, swarm = self._host, self._swarm
        silent = not host.there(swarm.now) or (host.mute and load["fun"] not in ANSWERS)
        if silent or swarm.random.random() < host.loses:
            swarm.lost += 1
            return
        await self._send(
            {
                **{"cmd": "_return", "jid": load["jid"], "fun": load["fun"], "return": answer},
                **{"success": True, "retcode": 0, "fun_args": load["arg"]},
            }
        )
        swarm.sent[load["fun"]] += 1

    async def _start_event(self) -> None:
        tag = f"salt/minion/{self._host.name}/start"
        await self._send({"cmd": "_minion_event", "pretag": None, "tag": tag, "data": "started"})
        self._swarm.sent["start"] += 1

    async def _send(self, load: dict) -> None:
        while True:
            try:
                await self._channel.send(load, timeout=60, tries=3)
            except salt.exceptions.SaltException:
                if self._swarm.keeps:
                    continue
                self._swarm.lost += 1
            return


class _Nothing:
    """What newer Salt awaits, and older Salt does not look at."""

    def __await__(self) -> Iterator[None]:
        return iter(())


# -- what the fakes answer -----------------------------------------------------------------


def _arguments(arg: Iterable[object]) -> tuple[list[object], dict[str, object]]:
    args, kwargs = [], {}
    for each in arg:
        if isinstance(each, Mapping) and each.get("__kwarg__"):
            kwargs |= {key: value for key, value in each.items() if key != "__kwarg__"}
        else:
            args.append(each)
    return args, kwargs


def _question(args: list, kwargs: Mapping) -> int:
    return kwargs.get("question", args[0] if args else 0)


def _report(host: Machine, now: float, question: int = 0) -> object:
    return host.answer(question, now)


def _request(
    host: Machine,
    now: float,
    number: int,
    version: str = "",
    extension: str = "",
    question: int = 0,
) -> object:
    return host.answer(question, now, host.take(number, (version, extension), now))


def _withdraw(host: Machine, now: float, number: int, question: int = 0) -> object:
    return host.answer(question, now, host.withdraw(number, now))


def _prefetch(host: Machine, now: float, *_: object, **__: object) -> object:
    host.staged = "done"
    return host.answer(0, now)


def _plan(host: Machine, now: float, version: str | None = None, **_: object) -> object:
    return {
        "changes": {"salt-minion": {"old": host.version, "new": version}},
        "findings": [],
        "jobs": [],
        "staged": host.staged == "done",
        "steps": [],
    }


def _accepted(
    host: Machine, now: float, jids: Iterable[str], aims: Iterable[Mapping] = ()
) -> object:
    """Answer as a minion that is meant by whatever it hears of: here Salt waits for no others."""
    said = {
        about(number): MISSED if host.missed[jid] else AWAY
        for aim in aims
        for number, jid in aim["jobs"].items()
    }
    return said | {jid: "delivered" for jid in jids if host.ran[jid]}


def _nothing(*_: object, **__: object) -> object:
    return {}


def _other(*_: object, **__: object) -> object:
    return True


ANSWERS: dict[str, Callable[..., object]] = {
    QUERY: _accepted,
    "safeupdate.report": _report,
    "safeupdate.request": _request,
    "safeupdate.withdraw": _withdraw,
    "safeupdate.prefetch": _prefetch,
    "safeupdate.plan": _plan,
    "saltutil.find_job": _nothing,
}
# What a minion may lie about.
LIES = ("safeupdate.report", "safeupdate.request", "safeupdate.withdraw")


# -- what it stands on ---------------------------------------------------------------------


def names(count: int) -> list[str]:
    return [f"m{number:04}" for number in range(count)]


def _options(master: Mapping, path: object) -> dict:
    opts = copy.copy(salt.config.minion_config(None))
    port = master["ret_port"]
    opts.update(
        id="swarm",
        root_dir=str(path),
        pki_dir=str(path / "pki"),
        cachedir=str(path / "cache"),
        sock_dir=str(path / "sock"),
        conf_file=str(path / "minion"),
        extension_modules=str(path / "extmods"),
        master="127.0.0.1",
        master_ip="127.0.0.1",
        master_port=port,
        publish_port=master["publish_port"],
        master_uri=f"tcp://127.0.0.1:{port}",
        grains={},
        auth_timeout=120,
        auth_tries=5,
        request_channel_timeout=60,
        recon_default=100,
        recon_max=1000,
        __role="minion",
    )
    (path / "pki").mkdir(parents=True, exist_ok=True)
    return opts


def _wait_for_ever(transport: object) -> None:
    """Have a subscription wait; 3008 looks up three times a second, too often for hundreds."""
    if hasattr(transport, "recv"):
        receive = transport.recv
        transport.recv = lambda timeout=None: receive()


def _raise_limit(files: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, hard), hard))


def _io_loop() -> object:
    """Return a loop of the Tornado that this Salt has."""
    try:
        from salt.ext.tornado.ioloop import IOLoop
    except ImportError:
        from tornado.ioloop import IOLoop
    return IOLoop(make_current=True)
