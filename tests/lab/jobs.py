"""A minion that is set up as users do it, a master that redelivers, and a stream of jobs."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from devtools.command import ToolError, run
from devtools.experiment import MINION
from devtools.lab.container import Lab, Network
from tests.lab.scene import SET_UP, STATE_DIR, TELLS, Scene

ENGINE = {"engines": [{"safeupdate_redeliver": {"window": 900}}]}
DATABASE = f"{STATE_DIR}/safeupdate.db"
WORK = "/var/tmp/work"
STATES = 30
# What a minion is configured with whose restarts wait for jobs, and one that is handed over.
WAITING: Mapping[str, Any] = {"safeupdate": {**SET_UP["safeupdate"], "restart": "wait"}}
WAYS: Mapping[str, Mapping[str, Any]] = {"handover": {}, "wait": WAITING}

MASTER_ADDRESS = "10.77.0.1"
MINION_ADDRESS = "10.77.0.2"


class JobScene(Scene):
    """
    A Scene with the stop guard installed and the engine ``safeupdate_redeliver``.

    *master_config* is laid over that of the master; a value of None takes a key away. With
    *apart* the master is in a network of its own, at the other end of a veth pair. What fetches the
    index of the packages, and what installs the minion's again, is in *refresh* and *reinstall*.
    """

    refresh: Sequence[str] = ("apt-get", "update")
    reinstall: Sequence[str] = ("apt-get", "install", "-y", "--reinstall", "salt-minion")

    def __init__(
        self,
        lab: Lab,
        site: Path,
        version: str = "3007.15",
        *,
        master_config: Mapping[str, Any] | None = None,
        apart: bool = False,
        config: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        settings = {**ENGINE, **TELLS, **(master_config or {})}
        if apart:
            config = {"master": MASTER_ADDRESS, **(config or {})}
            settings["interface"] = MASTER_ADDRESS
        settings = {key: value for key, value in settings.items() if value is not None}
        self._near = Network(lab) if apart else None
        super().__init__(lab, site, version, config=config, master_config=settings, **kwargs)
        self.site = site

    def _network(self, lab: Lab) -> Network:
        if self._near is None:
            return super()._network(lab)
        _connect(self.master.network, self._near)
        return self._near

    def down(self) -> None:
        super().down()
        if self._near is not None:
            self._near.close()

    def cable(self, state: str) -> None:
        """Set the way between minion and master ``up`` or ``down``."""
        assert self._near is not None
        run(["ip", "-n", self.master.network.name, "link", "set", "cable", state], timeout=30)

    def up(self) -> JobScene:
        super().up()
        self.enable()
        self.sls("thirty", thirty())
        self.master.wait(self._is_of_age, 60, "the ledger to answer for new jobs")
        return self

    def _is_of_age(self) -> bool:
        """Tell whether a job of now would be missed, and not of a time that nobody knows of."""
        jid = str(self.master.ask("new_jid")["jid"])
        return self.call("safeupdate.accepted", [jid]) == {}

    def pillar(self, text: str) -> None:
        """Have the master give this pillar to every minion."""
        place = self.master.dir / "pillar"
        (place / "top.sls").write_text("base: {'*': [all]}\n")
        (place / "all.sls").write_text(text)

    def open_jobs(self) -> list[list[Any]]:
        return self.query("SELECT jid, fun, state FROM jobs WHERE state != 'delivered'")

    def wait_held(self, jid: str) -> None:
        """Wait until a job waits in a queue."""
        self.master.wait(
            lambda: any(job[0] == jid and job[2] == "held" for job in self.open_jobs()),
            60,
            f"job {jid} to wait",
        )

    def traces(self) -> list[str]:
        """Return what the jobs have written, a line each time that work began or ended."""
        return self.container.read(WORK, "").splitlines()

    def wait_trace(self, line: str, timeout: float = 60) -> None:
        self.master.wait(lambda: line in self.traces(), timeout, f"the trace {line}")

    def kill(self, signal: str = "KILL", who: str = "all") -> None:
        """
        Kill the minion; return when systemd has noticed, or a start would do nothing.

        A unit with ``Restart=`` may have started it again by then: Salt ends with a failure if a
        SIGTERM comes while it starts.
        """
        before = self.pid()
        self.container.run(["systemctl", "kill", "-s", signal, f"--kill-who={who}", "salt-minion"])
        self.master.wait(
            lambda: (
                self.container.service()["ActiveState"] in ("inactive", "failed")
                or self.pid() not in ("0", before)
            ),
            120,
            "the minion to be gone",
        )

    def minion_started(self, before: str, timeout: float = 90) -> None:
        self.master.wait(lambda: self.pid() not in ("0", before), timeout, "a new minion")


class Timetable:
    """
    A job of the schedule every 3 s, from soon on, and one of each special kind.

    | Entry | Has to run |
    | --- | --- |
    | ``once``, ``when``, ``cron`` in turn; ``when`` with ``splay`` | once |
    | ``run_on_start`` | once for each minion |
    | ``maxrunning: 1``, every second, ends with *flag* | once until then |
    | modified (and so persisted) during the wait | once, at its later time |
    | Salt's own | all the time |
    """

    def __init__(self, scene: JobScene, seconds: int, flag: str) -> None:
        self._scene = scene
        # The modified one is of the minion, the others of its pillar.
        self._add("moved", once="2099-01-01T00:00:00")
        self.begin = int(time.time()) + 8
        self._end = self.begin + seconds
        kinds = itertools.cycle((_once, _when, _cron))
        timed = {
            f"{kind.__name__[1:]}-{at - self.begin}": kind(datetime.datetime.fromtimestamp(at))
            for at, kind in zip(range(self.begin, self._end, 3), kinds, strict=False)
        }
        middle = datetime.datetime.fromtimestamp(self.begin + seconds // 2)
        timed["splayed"] = {**_when(middle), "splay": 3}
        self._once = {*timed, "moved"}
        until = f"echo limited >> {WORK}; until test -e {flag}; do sleep 0.1; done"
        table = {name: _job(f"echo {name} >> {WORK}", **due) for name, due in timed.items()}
        table["started"] = _job(f"echo started >> {WORK}", seconds=3600, run_on_start=True)
        table["limited"] = _job(until, seconds=1, maxrunning=1)
        table["__update_grains"] = _job(f"echo internal >> {WORK}", seconds=1)
        scene.pillar(json.dumps({"schedule": table}))
        assert scene.call("saltutil.refresh_pillar") is True
        scene.wait_trace("limited")

    def _add(self, name: str, **due: str) -> None:
        job = [f"{key}={value}" for key, value in due.items()]
        args = f"job_args=['echo {name} >> {WORK}']"
        assert self._scene.call("schedule.add", name, "function=cmd.run", args, *job)["result"]

    def wait_until(self, second: int) -> None:
        """Wait until this second of the table has passed."""
        at = self.begin + second
        self._scene.master.wait(lambda: time.time() > at, second + 60, f"second {second}")

    def move(self) -> None:
        """Have the minion's own entry be due after the others."""
        due = datetime.datetime.fromtimestamp(self._end + 10).isoformat()
        job = ("function=cmd.run", f"job_args=['echo moved >> {WORK}']", f"once={due}")
        self._moved = self._scene.publish("schedule.modify", "moved", *job)

    def is_at_work(self) -> None:
        """Check that Salt's own entry runs now, and that the limited one does not run again."""
        before = self._scene.traces().count("internal")
        later = lambda: self._scene.traces().count("internal") > before + 2  # noqa: E731
        self._scene.master.wait(later, 30, "Salt's own entry to run")
        assert self._scene.traces().count("limited") == 1

    def judge(self) -> None:
        """Wait for the end of the table and check what has run."""
        scene = self._scene
        assert scene.returned(self._moved, 60)["return"]["result"]
        wanted = {**dict.fromkeys(self._once, 1), "started": 2}
        try:
            scene.master.wait(lambda: self._once <= set(scene.traces()), 180, "all of the table")
        except ToolError:
            missed = sorted(self._once - set(scene.traces()))
            raise AssertionError(f"since {self.begin}, these never ran: {missed}") from None
        found = Counter(scene.traces())
        del found["internal"], found["limited"]
        assert found == wanted
        scene.pillar("{}")
        assert scene.call("saltutil.refresh_pillar") is True
        assert scene.call("schedule.delete", "moved")["result"]


def _job(line: str, **due: Any) -> dict[str, Any]:
    return {"function": "cmd.run", "args": [line], **due}


def _once(at: datetime.datetime) -> dict[str, Any]:
    return {"once": at.isoformat()}


def _when(at: datetime.datetime) -> dict[str, Any]:
    return {"when": at.isoformat()}


def _cron(at: datetime.datetime) -> dict[str, Any]:
    return {"cron": f"{at.minute} {at.hour} {at.day} {at.month} * {at.second}"}


def _connect(master: Network, minion: Network) -> None:
    """Lay a veth pair between two networks."""
    pair = ["type", "veth", "peer", "name", "cable", "netns", minion.name]
    run(["ip", "-n", master.name, "link", "add", "cable", *pair], timeout=30)
    for network, address in ((master, MASTER_ADDRESS), (minion, MINION_ADDRESS)):
        ip = ["ip", "-n", network.name]
        run([*ip, "address", "add", f"{address}/24", "dev", "cable"], timeout=30)
        run([*ip, "link", "set", "cable", "up"], timeout=30)


def thirty(seconds: float = 0.2) -> str:
    """Return an SLS with a chain of states that leave a trace each."""
    parts = []
    for number in range(STATES):
        line = f"echo {{{{ pillar['label'] }}}} s{number:02} >> {WORK}; sleep {seconds}"
        part = f"s{number:02}:\n  cmd.run:\n    - name: {line}\n"
        if number:
            part += f"    - require:\n      - cmd: s{number - 1:02}\n"
        parts.append(part)
    return "\n".join(parts)


@dataclass
class Sent:
    """A job of the stream."""

    label: str
    kind: str
    jid: str
    at: float


Who = TypeVar("Who", bound="Publishing")


class Publishing:
    """
    Publishes one job after the other, every *interval* seconds, until it is told to stop.

    Not more than *most* without a return: a busy machine is to be slow, not buried.
    """

    def __init__(self, scene: Scene, interval: float, most: int) -> None:
        self._scene, self._interval, self._most = scene, interval, most
        self._open: set[str] = set()
        self._looked = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self: Who) -> Who:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def publish(self) -> str:
        """Publish the next job; return its JID."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            if self._waiting() >= self._most:
                continue
            # If the master does not take it, it was not published.
            with contextlib.suppress(ToolError):
                self._open.add(f"salt/job/{self.publish()}/ret/{MINION}")

    def _waiting(self) -> int:
        """Return how many of the jobs have not returned, by the master's events."""
        fresh = self._scene.master.events[self._looked :]
        self._looked += len(fresh)
        self._open -= {event.tag for event in fresh}
        return len(self._open)


class Stream(Publishing):
    """Publishes jobs of every kind. In *off* are times in which the host or its minion was off."""

    def __init__(self, scene: JobScene, interval: float = 0.8, most: int = 15) -> None:
        super().__init__(scene, interval, most)
        self.sent: list[Sent] = []
        self.off: list[tuple[float, float]] = []
        self._numbers = itertools.count(1)
        self._order = itertools.cycle(
            ("short", "sleep", "ping", "states", "short", "sleep", "queue")
        )
        self._kinds: dict[str, Callable[[str], str]] = {
            "short": lambda label: self._work(label, 0),
            "sleep": lambda label: self._work(label, 4),
            "states": self._states,
            "ping": lambda label: self._scene.publish("test.ping"),
            "queue": lambda label: self._states(label, queue=True),
        }

    def publish(self) -> str:
        kind = next(self._order)
        label = f"{kind}-{next(self._numbers)}"
        jid = self._kinds[kind](label)
        self.sent.append(Sent(label, kind, jid, time.monotonic()))
        return jid

    def _work(self, label: str, seconds: float) -> str:
        line = f"echo {label} start >> {WORK}; sleep {seconds}; echo {label} end >> {WORK}"
        return self._scene.publish("cmd.run", line)

    def _states(self, label: str, **kwargs: Any) -> str:
        return self._scene.publish("state.apply", "thirty", pillar={"label": label}, **kwargs)

    # -- judging -------------------------------------------------------------------------

    def await_returns(self, timeout: float) -> list[str]:
        """Return the labels of the jobs that have not returned in time."""
        deadline = time.monotonic() + timeout
        missing = [job for job in self.sent if not self._came_while_off(job)]
        while missing and time.monotonic() < deadline:
            missing = [job for job in missing if MINION not in self._scene.master.returns(job.jid)]
            time.sleep(0.5)
        return [f"{job.label} {job.jid}" for job in missing]

    def lost(self) -> list[str]:
        """Return the labels of jobs that came while it was off, and have not returned."""
        off = filter(self._came_while_off, self.sent)
        return [job.label for job in off if MINION not in self._scene.master.returns(job.jid)]

    def _came_while_off(self, job: Sent) -> bool:
        return any(began <= job.at <= ended for began, ended in self.off)

    def verdict(self) -> dict[str, list[str]]:
        """Return what is wrong, by kind of wrong, and what was honestly reported."""
        traces = self._scene.traces()
        found: dict[str, list[str]] = {"reported": [], "refused": [], "twice": [], "wrong": []}
        for job in self.sent:
            returned = self._scene.master.returns(job.jid).get(MINION)
            if returned is None:
                continue
            value = returned["return"]
            if "was interrupted" in str(value):
                found["reported"].append(job.label)
            elif job.kind in ("states", "queue"):
                self._judge_states(job, value, found)
            elif not returned.get("success"):
                found["wrong"].append(f"{job.label}: {value}")
            elif job.kind != "ping" and traces.count(f"{job.label} end") != 1:
                found["wrong"].append(f"{job.label}: ended {traces.count(f'{job.label} end')}")
            if job.kind in ("short", "sleep") and traces.count(f"{job.label} start") > 1:
                found["twice"].append(job.label)
        return found

    def _judge_states(self, job: Sent, value: Any, found: dict[str, list[str]]) -> None:
        if isinstance(value, list) and "is running as PID" in str(value):
            # Salt's own answer where another state run is under way and none may wait.
            found["refused"].append(job.label)
            return
        results = value.values() if isinstance(value, dict) else ()
        if len(results) != STATES or not all(ret["result"] for ret in results):
            found["wrong"].append(f"{job.label}: {str(value)[:300]}")
