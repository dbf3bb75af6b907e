"""
Setting up hosts that do not have this extension, or are not set up, in waves.

They cannot take part in a rollout, so Salt's own functions install the extension, and the state
sets it up. It runs in the process of the runner, and may be begun again at any time, because
minions that are set up are left out. The answer of each minion to the engine of this master, which
nobody else can give, decides about the result, and not the returns of jobs. The newest run is
recorded for :func:`shown`; the record decides nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import salt.client
from salt.exceptions import PublishError, SaltException

from ..core import times
from ..core.errors import InputError, LockHeldError, SafeUpdateError, one_line
from ..core.extensions import ourselves
from ..core.host import processes
from ..fleet import checkpoints, onboarding, platforms
from ..fleet import plan as plans
from ..fleet import request as requests
from ..fleet.onboarding import Answer, Onboarding, Step
from ..fleet.plan import Facts, Plan
from ..fleet.text import clean, names
from . import below, draining, gate, newest, planning, questions, targets
from .alone import alone
from .gatekeeper import Gatekeeper
from .newest import Ask
from .store import ROLLOUTS, Store

# Seconds that minions have to report their progress, and between two looks.
ANSWER_TIMEOUT, INTERVAL = 30.0, 5.0
# Seconds that this waits for a master that is away, for example during its restart.
PATIENCE = 900.0
CHECK = "safeupdate.check"
# The settings of a rollout that apply here.
SETTINGS = (
    *("canaries", "waves", "max_unavailable", "max_failed", "soak", "windows", "closed"),
    *("exclude", "minion_timeout", "groups", "gate_before", "gate_after", "gate_timeout"),
)
_LOCK = "onboarding.lock"
# The key of the record of the newest run. Only the holder of the lock writes it.
_KEY = "onboarding"
# Its fields that are seconds since 1970.
_TIMES = ("began", "looked", "ended")
_BUSY = "Another process is setting up minions. Nothing was begun; try again when it has ended."
# On minions, and of root alone: where others may write, somebody could put another wheel.
_DIRECTORY = "/var/cache/salt-safeupdate"
Publish = Callable[[Sequence[str], object, Sequence[Any]], object]
# Asks the gate of that name: whether it says yes, and what it says.
AskGate = Callable[[str], tuple[bool, str]]


def run(
    opts: Mapping[str, Any],
    target: object,
    tgt_type: str,
    settings: Mapping[str, Any],
    *,
    wheel: str = "",
    sls: str = "",
    test: bool = False,
    by: str = "",
    out: TextIO,
    publish: Publish | None = None,
    ask: Ask = questions.ask,
    ask_gate: AskGate | None = None,
    clock: Callable[[], float] = time.time,
    passed: Callable[[], float] = processes.since_boot,
    pause: Callable[[float], object] = time.sleep,
) -> dict[str, Any]:
    """
    Set minions up in waves; return which are done, have failed or are left out, and why.

    *wheel* is a ``salt://`` path that pip installs on minions without the extension, *sls* an SLS
    that installs it. With *test*, nothing is begun. *out* gets the progress, and *by* names the
    person for the record. *passed* is a monotonic clock. Raises InputError, CacheError, and
    LockHeldError if another process is doing this; then nothing was begun.
    """
    how = _installation(wheel, sls)
    with alone(opts, _LOCK, _BUSY):
        plan, lacking = _plan(opts, target, tgt_type, settings, bool(how), ask, clock)
        state = Onboarding(plan, lacking)
        if not test:
            drive = _Drive(
                opts,
                state,
                how,
                publish=publish or _publisher(opts),
                ask=ask,
                ask_gate=ask_gate or Gatekeeper(opts).answer,
                out=out,
                clock=clock,
                passed=passed,
                pause=pause,
                by=by,
            )
            drive.run()
    return _told(state)


def shown(opts: Mapping[str, Any], zone: object = times.UTC) -> dict[str, Any]:
    """
    Return the record of the newest run: the result of :func:`run` so far, and its progress.

    *zone* is a time zone, as for ``times``. Raises InputError if there is no record, RecordError if
    it is unreadable, and CacheError.
    """
    store, running = Store(opts), False
    try:
        # A run holds the lock. If the lock is free, a run that has not ended has lost its process.
        with alone(opts, _LOCK, _BUSY):
            found = kept(store)
    except LockHeldError:
        found, running = kept(store), True
    if found is None:
        raise InputError("No minions have been set up in waves yet. Give a target to begin.")
    mode = "stopped" if found["stopped"] else "finished"
    if not found["ended"]:
        mode = "running" if running else "interrupted"
    return times.beside({"mode": mode, **found}, _TIMES, zone)


def kept(store: Store) -> dict[str, Any] | None:
    """Return the record of the newest run; None without one. Raises RecordError."""
    found = store.cache.read(ROLLOUTS, _KEY)
    if found is None:
        return None
    fits = isinstance(found, dict) and "stopped" in found
    if fits and all(isinstance(found.get(key), int | float) for key in _TIMES):
        return dict(found)
    raise store.cache.damaged(ROLLOUTS, _KEY, "it is no record of an onboarding")


def _told(state: Onboarding) -> dict[str, Any]:
    plan = state.plan
    failed = {name: state.hosts[name].why for name in state.named(Step.FAILED)}
    return {
        "waves": [list(wave.minions) for wave in plan.waves],
        "done": state.named(Step.DONE),
        "failed": failed,
        "not_begun": state.named(Step.WAITING),
        "left_out": dict(plan.left_out),
        "remarks": {
            name: sorted(host.last.problems)
            for name, host in state.hosts.items()
            if host.step is Step.DONE and host.last and host.last.problems
        },
        "stopped": state.why,
        "retcode": int(bool(failed or state.why or plan.unfit)),
    }


def _installation(wheel: str, sls: str) -> tuple[object, list[Any]] | None:
    """Return the functions and arguments that install the extension."""
    if wheel and sls:
        raise InputError("Give 'wheel' or 'sls', not both. Nothing was begun.")
    if sls:
        return "state.apply", [sls]
    if not wheel:
        return None
    if not wheel.startswith("salt://") or not wheel.endswith(".whl"):
        raise InputError(
            f"'wheel' is {wheel!r}, and has to be the salt:// path of a wheel. Nothing was begun."
        )
    there = os.path.join(_DIRECTORY, os.path.basename(wheel))
    fetched = {"__kwarg__": True, "makedirs": True}
    options = {"__kwarg__": True, "no_deps": True, "upgrade": True}
    functions = ["cp.get_file", "pip.install", "saltutil.refresh_modules"]
    return functions, [[wheel, there, fetched], [there, options], []]


def _plan(
    opts: Mapping[str, Any],
    target: object,
    tgt_type: str,
    settings: Mapping[str, Any],
    installs: bool,
    ask: Ask,
    clock: Callable[[], float],
) -> tuple[Plan, frozenset[str]]:
    """Return the waves, and the minions without the extension."""
    if strange := _strange(settings):
        raise InputError(
            f"Onboarding has no setting {', '.join(strange)}. Nothing was begun; it has "
            f"{', '.join(sorted(SETTINGS))}."
        )
    if bool(target) == bool(settings.get("groups")):
        raise InputError("Give a target or 'groups', and not both. Nothing was begun.")
    group = {"name": "minions", "target": target, "tgt_type": tgt_type}
    # A plan is about versions, so the version of this extension stands for the set-up.
    version = ourselves.running_version()
    wanted = requests.from_mapping({"groups": [group], **settings, "extension": version})
    for name in sorted(wanted.gates):
        gate.named(opts, name)
    planning.refuse_nobody(opts, wanted)
    members, unknown = planning.members_of(opts, wanted)
    below.refuse(opts, members)
    sure = sorted({m for each in members.values() for m in each}.difference(unknown))
    drained, now = draining.drained(Store(opts), clock()), clock()
    asked = [m for m in sure if m not in drained and m not in wanted.exclude]
    said = ask(opts, asked, CHECK, (), ANSWER_TIMEOUT)
    answers = {minion: onboarding.read(each) for minion, each in said.items()}
    lacking = frozenset(minion for minion, each in answers.items() if each.lacks)
    grains = targets.grains_of(opts, sorted(lacking)) if lacking else {}
    facts = {m: _facts(answers.get(m), installs=installs) for m in asked}
    facts |= {
        m: Facts(unsupported=why)
        for m in lacking
        if (why := platforms.unsupported(said[m], grains.get(m, {})))
    }
    facts |= {m: Facts(held=drained[m]) for m in sure if m in drained}
    plan = plans.make(
        wanted,
        members,
        {**facts, **unknown},
        plan_id="",
        number=0,
        now=now,
        draw=newest.by_chance,
    )
    return plan, lacking


def _strange(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings, also of groups, that onboarding does not have."""
    groups = settings.get("groups")
    listed = groups if isinstance(groups, list | tuple) else ()
    of_groups = {str(name) for group in listed if isinstance(group, Mapping) for name in group}
    return sorted((set(settings) | of_groups - {"name", "target", "tgt_type"}) - set(SETTINGS))


def _facts(answer: Answer | None, *, installs: bool) -> Facts:
    if answer is None:
        return Facts(problem="does not answer; do this again when it does")
    if answer.lacks and not installs:
        return Facts(problem="does not have the extension; give 'wheel' or 'sls' to install it")
    if answer.is_set_up:
        return Facts(extension=ourselves.running_version())
    if answer.told:
        return Facts(problem=f"gives a senseless answer: {answer.told}")
    return Facts()


@dataclass
class _Drive:
    """Sets minions up until that is over, and stores how far it is. *due* is to be published."""

    opts: Mapping[str, Any]
    state: Onboarding
    how: tuple[object, list[Any]] | None
    publish: Publish
    ask: Ask
    ask_gate: AskGate
    out: TextIO
    clock: Callable[[], float]
    passed: Callable[[], float]
    pause: Callable[[float], object]
    by: str
    due: list[tuple[Sequence[str], object, Sequence[Any]]] = field(default_factory=list)
    began: float = 0.0
    gate_at: float = 0.0
    steps: dict[str, Step] = field(default_factory=dict)
    waits: str = ""
    stored: tuple[dict[str, Step], str] | None = None

    def run(self) -> None:
        self.began = self.clock()
        self._keep()
        away: float | None = None
        while not self.state.over:
            try:
                self._look()
                away = None
            except (SafeUpdateError, SaltException, OSError) as err:
                # A restarted master comes back; minions that have begun continue meanwhile.
                why = f"this master cannot ask, publish or keep its record: {one_line(err)}"
                if away is None:
                    away = self.passed()
                    self.out.write(f"{clean(why)}\n")
                if self.passed() - away > PATIENCE:
                    self.state.give_up(why)
            if not self.state.over:
                self.pause(INTERVAL)
        self._tell()
        try:
            self._keep(ended=self.clock())
        except SafeUpdateError as err:
            # The record decides nothing, so the result is still true.
            self.out.write(f"the record of the end cannot be stored: {clean(one_line(err))}\n")

    def _look(self) -> None:
        """Ask the minions at work and the gates, decide, store that, and publish what follows."""
        active = self.state.active
        said = self.ask(self.opts, active, CHECK, (), ANSWER_TIMEOUT) if active else {}
        answers = {minion: onboarding.read(each) for minion, each in said.items()}
        ready = self.state.hear(answers, self.passed())
        self._gates()
        install, there = self.state.begin(self.passed(), self.clock())
        if install and self.how is not None:
            self.due.append((install, *self.how))
        if ready or there:
            given = ["safeupdate.enabled", "safeupdate"]
            self.due.append(([*ready, *there], "state.single", given))
        self._tell()
        # First: then it is known who has begun, whatever ends this process.
        self._keep()
        while self.due:
            self.publish(*self.due[0])
            del self.due[0]

    def _gates(self) -> None:
        """Ask the gates that are due. No minion is at work then, so none has to wait."""
        while name := self.state.asks(self.passed(), self.clock()):
            if self.passed() < self.gate_at:
                return
            opens, why = self.ask_gate(name)
            self.state.said(name, opens, clean(why), self.passed())
            self.gate_at = 0.0 if opens else self.passed() + checkpoints.INTERVAL

    def _tell(self) -> None:
        """Write what has changed since the last time."""
        state, out = self.state, self.out
        now = {name: host.step for name, host in state.hosts.items()}
        for step in (Step.INSTALLING, Step.SETTING_UP, Step.DONE, Step.FAILED):
            if fresh := [name for name in now if now[name] is step is not self.steps.get(name)]:
                out.write(f"{step.value}: {names(fresh)}\n")
                if step is Step.FAILED:
                    out.writelines(f"  {clean(n)}: {clean(state.hosts[n].why)}\n" for n in fresh)
        if state.waits and state.waits != self.waits:
            out.write(f"{state.waits}\n")
        out.flush()
        self.steps, self.waits = now, state.waits

    def _keep(self, ended: float = 0.0) -> None:
        """Store how far it is, if that has changed or this is the end."""
        state = self.state
        if not ended and self.stored == (self.steps, self.waits):
            return
        told = {
            "by": self.by,
            "began": self.began,
            "looked": self.clock(),
            "ended": ended,
            "waits": state.waits,
            "under_way": {name: state.hosts[name].step.value for name in state.active},
            **_told(state),
        }
        Store(self.opts).cache.write(ROLLOUTS, _KEY, told)
        self.stored = self.steps, self.waits


def _publisher(opts: Mapping[str, Any]) -> Publish:
    def publish(minions: Sequence[str], fun: object, arg: Sequence[Any]) -> None:
        # A new client each time: a restarted master has another key for its users. Minions without
        # an accepted key run into their time limit.
        with (
            contextlib.suppress(PublishError),
            salt.client.get_local_client(mopts=dict(opts)) as client,
        ):
            if not client.pub(list(minions), fun, list(arg), tgt_type="list").get("jid"):
                raise SafeUpdateError("it has not taken a job")

    return publish
