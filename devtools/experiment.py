"""The main experiment: Salt updates salt-minion in the middle of a highstate, under load."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devtools import processes, progress
from devtools.command import ToolError, check_stopping
from devtools.lab.container import SITE_PACKAGES, Container, Lab
from devtools.lab.recipes import VERSIONS
from devtools.master import Master
from devtools.observe import Moment, Observer
from devtools.outcome import Job, Outcome, state_names, update_name
from devtools.venvs import NEWEST

MINION = "m1"
LONG_JOBS = 5
# The next ping comes after this part of the time that has passed since the first, at the earliest.
PING_PART = 1 / 30
LONG_JOB_SECONDS = 25
ORDER_FILE = "/var/tmp/order"
JOBS_FILE = "/var/tmp/jobs"
HARD_TIMEOUT = 1200.0
# Seconds for returns of what was published just before the end.
LAST_RETURNS, PLAIN_LAST_RETURNS = 60.0, 10.0
# Seconds that a minion with a running service has for an answer: a busy machine is slow.
ANSWER_TIMEOUT = 60.0
# How long to wait, with a running service and nobody at work on the packages, for more returns.
# With the extension everything returns, so this never waits without a result.
PATIENCE = 180.0
PLAIN_PATIENCE = 15.0  # plain Salt sends nothing again
PACKAGE_PROGRAMS = ("apt-get", "dpkg", "dpkg-deb")
SUPERVISOR = "/core/launch.py"
SUPPORTED_PAIRS = (("3006.28", "3007.15"), ("3007.15", "3008.3"))
EXTENSION_CONFIG: Mapping[str, Any] = {
    "module_executors": ["safeupdate", "direct_call"],
    "engines": [{"safeupdate": {}}],
}
MASTER_CONFIG: Mapping[str, Any] = {"engines": [{"safeupdate_redeliver": {}}]}
FOLLOW_UPS = ("unpack", "configure", "installed", "stopping", "stopped", "restarted", "running")
# When somebody asks how the update is getting on.
LOOKS = ("unpack", "configure", "installed")


def sls(update: str = "pkg.latest", version: str = "") -> str:
    """Return somebody's SLS: 20 states in order, the minion's package in their middle."""
    exactly = f"    - version: {version}\n" if version else ""
    parts = []
    for name in state_names():
        if name == update_name():
            body = f"  {update}:\n    - name: salt-minion\n    - refresh: True\n{exactly}"
        else:
            body = f"  cmd.run:\n    - name: echo {name} >> {ORDER_FILE}; sleep 0.3\n"
        parts.append(f"{name}:\n{body}")
    return "\n".join(parts)


def minion_config(extra: Mapping[str, Any] | None = None) -> str:
    """Return a minion config (as YAML); *extra* is merged over the lab's own keys."""
    config: dict[str, Any] = {
        "id": MINION,
        "master": "127.0.0.1",
        "acceptance_wait_time": 1,
        "random_reauth_delay": 1,
        "recon_default": 100,
        "recon_max": 500,
        "log_level_logfile": "info",
    }
    # JSON is YAML
    return json.dumps(config | dict(extra or {}), indent=1) + "\n"


def extension_layer(lab: Lab, site: Path, into: str = SITE_PACKAGES) -> Path:
    """Return an overlay layer that puts the built extension into the minion's Python."""
    layer = lab.run_dir.path / f"ext{lab.run_dir.number()}"
    shutil.copytree(site, layer / into.lstrip("/"))
    return layer


_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$')


class Experiment:
    """One run; :meth:`run` boots, measures, removes and returns the :class:`Outcome`."""

    def __init__(
        self,
        lab: Lab,
        old: str,
        new: str,
        *,
        site: Path | None = None,
        config: Mapping[str, Any] | None = None,
        master_config: Mapping[str, Any] | None = None,
        update: str = "pkg.latest",
        kill_mode: str | None = None,
        stop_timeout: int | None = None,
        master: str | None = None,
        long_jobs: int = LONG_JOBS,
        long_seconds: float = LONG_JOB_SECONDS,
        patience: float | None = None,
        ping_interval: float = 1.0,
    ) -> None:
        """*site* is the built extension; without it the run is plain Salt.

        *update* is the state function of the 10th state, *kill_mode* and *stop_timeout* change
        the minion's unit (systemd's own time-out is 90 s), *patience* is how long to wait for
        more returns, *ping_interval* is the least number of seconds between two pings.
        """
        self.lab, self.old, self.new, self.site = lab, old, new, site
        self.patience = patience or (PATIENCE if site else PLAIN_PATIENCE)
        self.long_jobs, self.long_seconds = long_jobs, long_seconds
        self.ping_interval = ping_interval
        self.update = update
        settings = dict(MASTER_CONFIG if site else {}) | dict(master_config or {})
        self.master = Master.take(lab, master or NEWEST, config=settings, pythonpath=site)
        layers = [extension_layer(lab, site)] if site else []
        offers = [f"salt-minion_{version}" for version in (old, new)]
        self.container: Container = lab.container(
            old, offers=offers, extra_layers=layers, network=self.master.network
        )
        settings = dict(EXTENSION_CONFIG if site else {}) | dict(config or {})
        self.container.write("/etc/salt/minion.d/lab.conf", minion_config(settings))
        service = {"KillMode": kill_mode, "TimeoutStopSec": stop_timeout}
        if chosen := [f"{key}={value}" for key, value in service.items() if value is not None]:
            drop_in = "/etc/systemd/system/salt-minion.service.d/lab.conf"
            self.container.write(drop_in, "\n".join(["[Service]", *chosen]) + "\n")
        (self.master.files / "work.sls").write_text(sls(update))
        (self.master.files / "top.sls").write_text("base:\n  '*':\n    - work\n")
        self.outcome = Outcome(old, new, site is not None, time.time())
        self.title = f"{old} -> {new} {'with the extension' if site else 'plain'}"
        self._publishing = threading.Lock()

    def run(self) -> Outcome:
        """Run to the end and remove container and master, whatever happens."""
        try:
            with progress.step(f"experiment {self.title}") as step:
                step.detail = "booting"
                self._boot()
                observer = Observer(self.container, self._follow_up)
                observer.start()
                try:
                    self._publish_all(observer)
                    self._await_quiet(observer, step)
                finally:
                    observer.stop()
                self._collect(observer)
        finally:
            self.container.down()
            self.master.give_back()
        return self.outcome

    # -- steps ---------------------------------------------------------------------------

    def _boot(self) -> None:
        self.master.start()
        self.container.up()
        self.master.wait_minion(MINION, 90)
        out = self.outcome
        out.running_before = str(self.master.call("test.version", minion=MINION))
        out.packages_before = self.container.packages()
        out.service_before = self.container.service()

    def _publish(self, label: str, function: str, *args: Any, into: list[Job]) -> None:
        with self._publishing:
            now = time.time()
            try:
                jid = self.master.publish(function, *args, target=MINION, tgt_type="list")
            except ToolError as err:
                progress.say(f"{self.title}: {label} could not be published: {err}")
                return
            into.append(Job(label, function, jid, now))

    def _work(self, label: str, seconds: float = 0) -> None:
        """Publish a job whose work leaves a trace of each time it is begun and ended."""
        nap = f"sleep {seconds}; " if seconds else ""
        line = f"echo {label} start >> {JOBS_FILE}; {nap}echo {label} end >> {JOBS_FILE}"
        self._publish(label, "cmd.run", f"{line}; echo {label}", into=self.outcome.jobs)

    def _publish_all(self, observer: Observer) -> None:
        for number in range(1, self.long_jobs + 1):
            self._work(f"long-{number}", self.long_seconds)
        self._publish("highstate", "state.apply", into=self.outcome.jobs)
        observer.note("highstate published")
        time.sleep(1)
        self._work("follow-up-early")

    def _follow_up(self, moment: str) -> None:
        if moment in FOLLOW_UPS:
            self._work(f"follow-up-{moment}")
        if self.site and moment in LOOKS:
            # It is not held: a traceback shows where it finds only half of its code.
            self._publish(f"look-{moment}", "safeupdate.status", into=[])

    def _await_quiet(self, observer: Observer, step: progress.Step) -> None:
        """
        Ping until everything has returned or nothing more will.

        The longer it takes, the less often: on a slow machine the pings would be what it does.
        """
        began = last_progress = time.monotonic()
        next_ping = 0.0
        known = (0, 0)
        while time.monotonic() - began < HARD_TIMEOUT:
            check_stopping()
            tick = time.monotonic()
            if tick >= next_ping:
                self._publish("ping", "test.ping", into=self.outcome.pings)
                next_ping = tick + max(self.ping_interval, (tick - began) * PING_PART)
            missing = [job.label for job in self.outcome.jobs if not self._seen(job)]
            some = ", ".join(missing[:3]) + (" and others" if len(missing) > 3 else "")
            step.detail = f"waiting for {some or 'the end of the update'}"
            current = (len(missing), len(observer.timeline))
            if current != known or observer.service.get("ActiveState") == "deactivating":
                known, last_progress = current, tick
            quiet = tick - last_progress
            if not missing and self._updated(observer) and quiet > 5:
                break
            if quiet > self.patience and not self._at_work():
                break
            time.sleep(max(0.0, 1 - (time.monotonic() - tick)))
        self.outcome.seconds = time.monotonic() - began

    def _at_work(self) -> bool:
        """Tell whether a package manager or a supervisor runs in the container."""
        inside = processes.sharing_netns(self.container.network.path)
        return any(
            processes.name(pid) in PACKAGE_PROGRAMS
            or any(word.endswith(SUPERVISOR) for word in processes.arguments(pid))
            for pid, _ in inside
        )

    def _updated(self, observer: Observer) -> bool:
        return "running" in observer.seen and observer.service.get("SubState") == "running"

    def _seen(self, job: Job) -> bool:
        if job.returned is None and (event := self.master.returned(job.jid, MINION)):
            job.returned = event.time
        return job.returned is not None

    # -- collecting ----------------------------------------------------------------------

    def _answer(self) -> str:
        """Return the version that the running minion tells; empty if it does not answer."""
        if self.container.service().get("ActiveState") in ("inactive", "failed"):
            return ""
        try:
            # It may just have been restarted, and hears nothing of what was published before.
            self.master.wait_minion(MINION, ANSWER_TIMEOUT)
            return str(self.master.call("test.version", minion=MINION, timeout=ANSWER_TIMEOUT))
        except ToolError:
            return ""

    def _collect(self, observer: Observer) -> None:
        out = self.outcome
        out.running_after = self._answer()
        # The last pings were published just now: a return on its way is not a lost one.
        deadline = time.monotonic() + (LAST_RETURNS if self.site else PLAIN_LAST_RETURNS)
        everything = (*out.jobs, *out.pings)
        while not all(self._seen(job) for job in everything) and time.monotonic() < deadline:
            time.sleep(0.1)
        for job in everything:
            found = self.master.returns(job.jid).get(MINION)
            if found is not None:
                job.cached, job.result = True, found.get("return")
                job.success = found.get("success")
        traces = self.container.read(JOBS_FILE, "").splitlines()
        for job in out.jobs:
            job.started = traces.count(f"{job.label} start")
            job.ended = traces.count(f"{job.label} end")
        out.order = self.container.read(ORDER_FILE, "").split()
        out.states, out.state_changes = _states(out.highstate.result)
        out.packages_after = self.container.packages()
        out.service_after = self.container.service()
        log = self.container.read("/var/log/salt/minion", "")
        out.tracebacks = tracebacks(log)
        jobs = [Moment(j.published, f"published {j.label}") for j in out.jobs]
        jobs += [Moment(j.returned, f"returned {j.label}") for j in out.jobs if j.returned]
        out.timeline = sorted([*observer.timeline, *jobs], key=lambda moment: moment.time)
        out.logs = f"{self.container.logs()}\n{self.master.log()}"


def _states(result: Any) -> tuple[dict[str, bool | None], dict[str, Any]]:
    """Return results and changes by state ID, in the order in which the states ran."""
    if not isinstance(result, dict):
        return {}, {}
    chunks = sorted(result.values(), key=lambda chunk: chunk.get("__run_num__", 0))
    ids = [chunk.get("__id__", "?") for chunk in chunks]
    results = {i: chunk.get("result") for i, chunk in zip(ids, chunks, strict=True)}
    return results, {i: chunk.get("changes") for i, chunk in zip(ids, chunks, strict=True)}


def tracebacks(log: str) -> list[str]:
    """Return the last line of each traceback in a Salt log, and where it was raised."""
    found: list[str] = []
    inside, place = False, ""
    for line in log.splitlines():
        if line.startswith("Traceback (most recent call last)"):
            inside, place = True, ""
        elif inside and (frame := _FRAME.match(line)):
            place = f" ({Path(frame[1]).name}, line {frame[2]}, in {frame[3]})"
        elif inside and line and not line.startswith(" "):
            inside = False
            found.append(line[:200] + place)
    return found


def pairs() -> list[str]:
    """Return the versions that an experiment can go from and to."""
    return sorted(VERSIONS)
