"""A fleet with a clock of its own: minions that update, break, keep silent and lie."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from saltext_safeupdate.fleet import controller, plan, request, rollout
from saltext_safeupdate.fleet.actions import Action, Ask, Cancel, Check, Quarantine, Stage, Start
from saltext_safeupdate.fleet.checkpoints import Verdict
from saltext_safeupdate.fleet.judge import Report
from saltext_safeupdate.fleet.rollout import Mode, Rollout

OLD, NEW = "3007.15", "3008.3"
NUMBER = 20261122000000000000
NOW = 1_780_000_000.0
# Seconds between two looks, and if nobody is at work.
STEP, QUIET_STEP = 5.0, 30.0
# Why a minion takes no request now, and may later.
BUSY = "another update is under way"
# Seconds after which a rollout has noticed that somebody is away: he was asked, and asked again.
NOTICED = 180.0


@dataclass
class Host:
    """A minion as it is, whatever the master knows of it."""

    name: str
    ends: str = "committed"
    takes: float = 120.0
    away: tuple[tuple[float, float], ...] = ()
    loses: float = 0.0
    refuses: str = ""
    held: str = ""  # why its settings keep it as it is
    locked: str = ""  # what its package manager keeps; only a request is told
    boots: float = -1.0  # seconds after the installation until somebody reboots it
    lies: bool = False
    version: str = OLD
    kept: list[str] = field(default_factory=list)  # versions in quarantine
    extension: str = "1.0"
    goal: tuple[str, str] = ("", "")
    number: int = 0
    phase: str = "idle"
    began: float = -1.0
    taken: list[int] = field(default_factory=list)
    staged: str = ""

    def there(self, now: float) -> bool:
        return not any(begin <= now < end for begin, end in self.away)

    def gone_for(self, now: float) -> float:
        """Return for how long it has been away; 0 if it is there."""
        return max((now - begin for begin, end in self.away if begin <= now < end), default=0.0)

    @property
    def busy(self) -> bool:
        """It is between its request and the end of its update, or never came back from it."""
        return self.phase in ("installing", "watching", "hangs", "failed")

    def take(self, number: int, goal: tuple[str, str], now: float) -> str:
        """Take a request, as the fence of a minion does; return why not."""
        if number < self.number:
            return "a newer request is known"
        if number == self.number:
            return ""
        if self.held or self.locked:
            return self.held or self.locked
        if self.refuses or self.phase in ("installing", "watching"):
            return self.refuses or BUSY
        self.number, self.phase, self.began, self.goal = number, "installing", now, goal
        self.taken.append(number)
        return ""

    def cancel(self, number: int) -> None:
        if number >= self.number:
            self.number = number

    def live(self, now: float) -> None:
        waited = now - self.began - self.takes
        if self.boots >= 0 and self.phase == "installing" and waited >= 0:
            self.phase = "waiting_for_boot"
        if self.phase == "waiting_for_boot" and waited >= self.boots:
            self.phase = "watching"
        watched = self.phase == "watching" and waited >= self.boots + self.takes
        if watched or (self.phase == "installing" and waited >= 0):
            self.phase = self.ends
            if self.ends == "committed":
                self.version = self.goal[0] or self.version
                self.extension = self.goal[1] or self.extension

    def report(self, question: int, refused: str = "") -> Report:
        phase = "installing" if self.phase == "hangs" else self.phase
        return Report(
            minion=self.name,
            question=question,
            number=self.number,
            phase=phase,
            version=self.version,
            extension=self.extension,
            refused=refused,
            held=self.held or (self.locked if refused == self.locked else ""),
            again=refused == BUSY,
            staged=self.staged,
            to_reboot=phase == "waiting_for_boot",
        )


class World:
    """Runs a rollout over *hosts*; *seed* decides what is lost, delayed and shuffled."""

    # On whose hosts people work, and why.
    drained: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        hosts: Iterable[Host],
        seed: int = 0,
        *,
        members: dict[str, list[str]] | None = None,
        **wanted: object,
    ) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.random = random.Random(seed)
        self.now = NOW
        asked = _as_large(request.from_mapping({"groups": "*", "version": NEW, **wanted}))
        facts = {
            name: plan.Facts(version=host.version)
            for name, host in self.hosts.items()
            if host.there(self.now)
        }
        members = members or {"group 1": list(self.hosts)}
        made = plan.make(asked, members, facts, plan_id="r1", number=NUMBER, now=NOW)
        self.rollout: Rollout = rollout.begin(made, NOW)
        self._due: list[tuple[float, Report]] = []
        self.told: list[Action] = []
        self.lost = self.sent = 0
        # What gates say, by name: a yes, or a no and why; who was asked when; what they have said.
        self.gates: dict[str, Callable[[float], str | None]] = {}
        self.asked: list[tuple[float, Check]] = []
        self._verdicts: list[Verdict] = []
        # Whom somebody has gone on without, once.
        self.gone_on: set[str] = set()

    def run(self, seconds: float, *, restarts: float = 0.0, watch: object = None) -> World:
        """Let time go by until the rollout has ended or stands; at most that long."""
        end = self.now + seconds
        while self.now < end and not self.rollout.mode.final:
            active = any(minion.step.active for minion in self.rollout.minions.values())
            if self.rollout.mode is Mode.STOPPED and not active and not self._due:
                break
            self.tick(restarts=restarts, step=STEP if active else QUIET_STEP)
            if callable(watch):
                watch(self)
        return self

    def tick(self, *, restarts: float = 0.0, step: float = STEP) -> list[Action]:
        self.now += step
        for host in self.hosts.values():
            host.live(self.now)
        come = [report for at, report in self._due if at <= self.now]
        self._due = [(at, report) for at, report in self._due if at > self.now]
        self.random.shuffle(come)
        come += self.random.sample(come, len(come) // 4)
        said, self._verdicts = self._verdicts, []
        actions = controller.advance(
            self.rollout, come, self.now, verdicts=said, drained=self.drained
        )
        if self.random.random() < restarts:
            # The master dies: what was stored is there, what was to be done is not.
            self.rollout = rollout.taken_up(
                rollout.from_data(rollout.to_data(self.rollout)), self.now
            )
            actions = [each for each in actions if self.random.random() < 0.5]
        self.do(actions)
        return actions

    def do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self.told.append(action)
            if isinstance(action, Ask):
                for name in action.minions:
                    self._answer(name, action.question)
            elif isinstance(action, Start) and (host := self._reached(action.minion)):
                self._check_start(host)
                refused = host.take(action.number, action.goal, self.now)
                self._send(host.report(action.question, refused))
            elif isinstance(action, Cancel) and (host := self._reached(action.minion)):
                host.cancel(action.number)
                self._send(host.report(action.question))
            elif isinstance(action, Check):
                self.asked.append((self.now, action))
                no = self.gates[action.gate](self.now)
                if no is None:
                    # It takes longer than anybody looks.
                    continue
                self._verdicts.append(Verdict(action.gate, action.number, not no, no))
            elif isinstance(action, Quarantine):
                self.rollout.kept = True
            elif isinstance(action, Stage):
                for name in action.minions:
                    if host := self._reached(name):
                        host.staged = "done"

    def _reached(self, name: str) -> Host | None:
        host = self.hosts[name]
        self.sent += 1
        if not host.there(self.now) or self.random.random() < host.loses:
            self.lost += 1
            return None
        return host

    def _answer(self, name: str, question: int) -> None:
        if host := self._reached(name):
            self._send(host.report(question))
            if host.lies:
                self._send(self._lie(host, question))

    def _lie(self, host: Host, question: int) -> Report:
        """Return what a minion may say of itself; of others it can say nothing."""
        return Report(
            minion=host.name,
            question=self.random.choice((question, question + 1000, -1)),
            number=self.random.choice((0, host.number, NUMBER * 2)),
            phase=self.random.choice(("committed", "rolled_back", "nonsense", "")),
            version=self.random.choice((NEW, OLD, "")),
            refused=self.random.choice(("", "no")),
        )

    def _send(self, report: Report) -> None:
        host = self.hosts[report.minion]
        if self.random.random() >= host.loses:
            self._due.append((self.now + self.random.expovariate(1 / 4), report))

    # -- what is to hold -----------------------------------------------------------------

    def steps(self) -> dict[str, str]:
        return {name: minion.step.value for name, minion in self.rollout.minions.items()}

    def check(self) -> None:
        """Assert what holds at every moment, by what the hosts really do."""
        # One that says it has ended while it has not is as much away as it likes.
        busy = [host.name for host in self.hosts.values() if host.busy and not host.lies]
        # A person may go on without one that is still at work.
        busy = [name for name in busy if not self.rollout.minions[name].forgiven]
        assert len(busy) <= self.rollout.plan.unavailable, busy
        of, limits = self.rollout.plan.group_of, self.rollout.plan.limits
        for group, most in limits.items():
            assert sum(of[name] == group for name in busy) <= most, (group, busy)
        for host in self.hosts.values():
            assert sorted(set(host.taken)) == host.taken, "a request of a number is taken once"
        known = self.rollout.minions.items()
        self.gone_on |= {name for name, each in known if each.forgiven or each.excused}
        self._check_gates()

    def _check_start(self, host: Host) -> None:
        """Assert that one more may be away, whoever is, in whatever wave."""
        known = self.rollout.minions
        away = [
            each.name
            for each in self.hosts.values()
            if each is not host and not each.lies
            if each.busy or each.gone_for(self.now) > NOTICED
            if not (known[each.name].excused or known[each.name].forgiven)
        ]
        assert len(away) < self.rollout.plan.unavailable, (host.name, away)
        of = self.rollout.plan.group_of
        same = [name for name in away if of[name] == of[host.name]]
        assert len(same) < self.rollout.plan.limits.get(of[host.name], 10**9), (host.name, same)

    def _check_gates(self) -> None:
        made = self.rollout.plan
        begun = [w for w, wave in enumerate(made.waves) if self._taken(wave.minions)]
        for wave in made.waves[: max(begun, default=0)]:
            hosts = [self.hosts[m] for m in wave.minions]
            hosts = [host for host in hosts if not (host.held or host.locked)]
            need = made.request.of(wave.group).sample.needs(len(hosts))
            forgiven = self.gone_on.intersection(wave.minions)
            done = [h.name for h in hosts if (h.version, h.extension) != (OLD, "1.0") or h.lies]
            assert len({*done, *forgiven}) >= need, (wave, done)

    def _taken(self, names: Iterable[str]) -> bool:
        return any(self.hosts[name].taken for name in names)


def _as_large(asked: request.Request) -> request.Request:
    """Return what is asked with the defaults of a large fleet, however few there are."""
    canaries = 2 if asked.canaries is None else asked.canaries
    waves = asked.waves or request.WAVES
    limit = asked.max_unavailable or request.UNAVAILABLE
    return replace(asked, canaries=canaries, waves=waves, max_unavailable=limit)


def ended(world: World) -> bool:
    return world.rollout.mode in (Mode.FINISHED, Mode.ABORTED)
