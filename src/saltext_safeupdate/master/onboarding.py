"""
Setting up hosts that do not have this extension, or are not set up, in waves.


They cannot take part in a rollout, so Salt's own functions install the extension, and the state
sets it up. It is no stored rollout: it runs in the process of the runner, and may be begun again at
any time, because minions that are set up are left out. The answer of each minion to the engine of
this master, which nobody else can give, decides about the result, and not the returns of jobs.
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

from ..core.errors import InputError, SafeUpdateError, one_line
from ..core.extensions import ourselves
from ..core.host import processes
from ..fleet import onboarding, platforms
from ..fleet import plan as plans
from ..fleet import request as requests
from ..fleet.onboarding import Answer, Onboarding, Step
from ..fleet.plan import Facts, Plan
from ..fleet.text import clean, names
from . import draining, newest, questions, targets
from .alone import alone
from .newest import Ask
from .store import Store

# Seconds that minions have to report their progress, and between two looks.
ANSWER_TIMEOUT, INTERVAL = 30.0, 5.0
# Seconds that this waits for a master that is away, for example during its restart.
PATIENCE = 900.0
CHECK = "safeupdate.check"
# The settings of a rollout that apply here.
SETTINGS = (
    *("canaries", "waves", "max_unavailable", "max_failed", "soak", "windows", "closed"),
    *("exclude", "minion_timeout"),
)
_LOCK = "onboarding.lock"
_BUSY = "Another process is setting up minions. Nothing was begun; try again when it has ended."
# On minions, and of root alone: where others may write, somebody could put another wheel.
_DIRECTORY = "/var/cache/salt-safeupdate"
Publish = Callable[[Sequence[str], object, Sequence[Any]], object]


def run(
    opts: Mapping[str, Any],
    target: object,
    tgt_type: str,
    settings: Mapping[str, Any],
    *,
    wheel: str = "",
    sls: str = "",
    test: bool = False,
    out: TextIO,
    publish: Publish | None = None,
    ask: Ask = questions.ask,
    clock: Callable[[], float] = time.time,
    passed: Callable[[], float] = processes.since_boot,
    pause: Callable[[float], object] = time.sleep,
) -> dict[str, Any]:
    """
    Set minions up in waves; return which are done, have failed or are left out, and why.

    *wheel* is a ``salt://`` path that pip installs on minions without the extension, *sls* an SLS
    that installs it. With *test*, nothing is begun. *out* gets the progress. *passed* is a
    monotonic clock. Raises InputError, and LockHeldError if another process is doing this; then
    nothing was begun.
    """
    how = _installation(wheel, sls)
    with alone(opts, _LOCK, _BUSY):
        plan, lacking = _plan(opts, target, tgt_type, settings, bool(how), ask, clock)
        state = Onboarding(plan, lacking)
        if not test:
            look = _Look(opts, state, how, publish or _publisher(opts), ask, clock, passed)
            _drive(look, state, out, passed, pause)
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
    if strange := sorted(set(settings) - set(SETTINGS)):
        raise InputError(
            f"Onboarding has no setting {', '.join(strange)}. Nothing was begun; it has "
            f"{', '.join(sorted(SETTINGS))}."
        )
    group = {"name": "minions", "target": target, "tgt_type": tgt_type}
    # A plan is about versions, so the version of this extension stands for the set-up.
    given = {**settings, "extension": ourselves.running_version(), "groups": [group]}
    wanted = requests.from_mapping(given)
    members, unsure = targets.resolved(opts, target, tgt_type)
    drained, now = draining.drained(Store(opts), clock()), clock()
    asked = [m for m in members if m not in drained and m not in wanted.exclude]
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
    facts |= {m: Facts(held=drained[m]) for m in members if m in drained}
    facts |= dict.fromkeys(unsure, Facts(problem="nobody knows if the target matches it"))
    plan = plans.make(
        wanted,
        {"minions": [*members, *unsure]},
        facts,
        plan_id="",
        number=0,
        now=now,
        draw=newest.by_chance,
    )
    return plan, lacking


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
class _Look:
    """Asks who is at work, decides, and publishes what follows; *due* was not published yet."""

    opts: Mapping[str, Any]
    state: Onboarding
    how: tuple[object, list[Any]] | None
    publish: Publish
    ask: Ask
    clock: Callable[[], float]
    passed: Callable[[], float]
    due: list[tuple[Sequence[str], object, Sequence[Any]]] = field(default_factory=list)

    def __call__(self) -> None:
        active = self.state.active
        said = self.ask(self.opts, active, CHECK, (), ANSWER_TIMEOUT) if active else {}
        answers = {minion: onboarding.read(each) for minion, each in said.items()}
        ready = self.state.hear(answers, self.passed())
        install, there = self.state.begin(self.passed(), self.clock())
        if install and self.how is not None:
            self.due.append((install, *self.how))
        if ready or there:
            given = ["safeupdate.enabled", "safeupdate"]
            self.due.append(([*ready, *there], "state.single", given))
        while self.due:
            self.publish(*self.due[0])
            del self.due[0]


def _drive(
    look: Callable[[], None],
    state: Onboarding,
    out: TextIO,
    passed: Callable[[], float],
    pause: Callable[[float], object],
) -> None:
    told: dict[str, Step] = {}
    away: float | None = None
    while not state.over:
        try:
            look()
            away = None
        except (SafeUpdateError, SaltException, OSError) as err:
            # A restarted master comes back; minions that have begun continue meanwhile.
            why = f"this master cannot ask or publish: {one_line(err)}"
            if away is None:
                away = passed()
                out.write(f"{clean(why)}\n")
            if passed() - away > PATIENCE:
                state.give_up(why)
        told = _tell(out, state, told)
        if not state.over:
            pause(INTERVAL)


def _tell(out: TextIO, state: Onboarding, told: Mapping[str, Step]) -> dict[str, Step]:
    """Print the changes; return the step of each minion."""
    now = {name: host.step for name, host in state.hosts.items()}
    for step in (Step.INSTALLING, Step.SETTING_UP, Step.DONE, Step.FAILED):
        if fresh := [name for name in now if now[name] is step is not told.get(name)]:
            out.write(f"{step.value}: {names(fresh)}\n")
            if step is Step.FAILED:
                out.writelines(f"  {clean(n)}: {clean(state.hosts[n].why)}\n" for n in fresh)
    out.flush()
    return now


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
