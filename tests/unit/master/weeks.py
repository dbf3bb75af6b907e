"""Weeks of a fleet with a policy: what is stored, what is decided, and what the hosts really do."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from dataclasses import dataclass

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.fleet import (
    controller,
    inventory,
    plan,
    policy,
    rollout,
    steering,
    stored,
    tidying,
    window,
)
from saltext_safeupdate.fleet.actions import Action, Ask, Cancel, Quarantine, Stage, Start
from saltext_safeupdate.fleet.judge import Report
from saltext_safeupdate.fleet.policy import Known
from saltext_safeupdate.fleet.rollout import Mode, Rollout
from saltext_safeupdate.fleet.stored import Outline
from saltext_safeupdate.master import given_up, policies
from tests.unit.fleet.world import BUSY, NOW, Host

DAY, HOUR = 86400.0, 3600.0
# Seconds between two steps of the policy, and between two looks at a rollout.
STEP, LOOK = 1800.0, 15.0


@dataclass
class Life(Host):
    """
    A host with a history of its own.

    It exists *since* then; it is *busy* and *kept_until* then; something else on it installs the
    old version again *each* so many seconds.
    """

    since: float = 0.0
    busy_until: float = 0.0
    kept_until: float = 0.0
    each: float = 0.0
    undone: float = 0.0

    def pass_time(self, now: float) -> None:
        self.refuses = BUSY if now < self.busy_until else ""
        self.held = "ask Jo" if now < self.kept_until else ""
        self.live(now)
        if self.each and now - self.undone >= self.each and not self.busy:
            self.undone, self.version = now, OLD_AGAIN


OLD_AGAIN = "3007.15"


class Stored:
    """What outlives an engine, in place of the cache of Salt."""

    def __init__(self) -> None:
        self.kept: dict[str, Rollout] = {}
        self.quarantine: dict[str, str] = {}

    def outlines(self) -> dict[str, Outline]:
        return {name: stored.outline_of(each) for name, each in self.kept.items()}

    def rollout(self, name: str) -> Rollout:
        return self.kept[name]

    def tidy(self, now: float) -> None:
        over = {n: each for n, each in self.outlines().items() if each.mode.final}
        # Few are kept: what must not be forgotten has to be kept all the same.
        for name in tidying.gone(over, {}, now, kept=3):
            del self.kept[name]


class Weeks:
    """Lets time go by; *seed* decides when an engine dies."""

    def __init__(
        self, hosts: list[Life], intent: dict, members: dict[str, list[str]], seed: int = 0
    ) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.members = members
        self.policy = policy.parse(intent)
        self.random = random.Random(seed)
        self.stored = Stored()
        self.now = NOW
        self.standings: list[policy.Standing] = []
        # Why no plan could be made for a group when it was tried last.
        self.refused: dict[str, str] = {}
        self.begun: list[tuple[float, str]] = []
        self.taken: list[tuple[float, str]] = []
        self._due: dict[str, list[Report]] = {}
        self._special = [each for each in hosts if each != Life(each.name)]
        self._moving: dict[str, Life] = {each.name: each for each in hosts if each.busy}
        self._records: dict[str, inventory.Record] = {}

    # -- time ----------------------------------------------------------------------------

    def run(self, days: float, *, restarts: float = 0.0) -> Weeks:
        end, person = self.now + days * DAY, self.now + DAY
        while self.now < end:
            self._step()
            until = self.now + STEP
            while self.now < until:
                active = [each for each in self.stored.kept.values() if not each.mode.final]
                self.now = self.now + LOOK if active else until
                self._pass_time()
                for each in active:
                    self._look(each, restarts)
            if self.now >= person:
                self._somebody_looks()
                self.stored.tidy(self.now)
                person += DAY
        return self

    def _pass_time(self) -> None:
        """Let time go by for those to whom something happens: most of thousands only wait."""
        for host in self._special:
            host.pass_time(self.now)
        for host in list(self._moving.values()):
            host.pass_time(self.now)
            if not host.busy:
                del self._moving[host.name]

    def _look(self, each: Rollout, restarts: float) -> None:
        name = each.plan.id
        because = self.stored.quarantine.get(each.plan.request.version, "")
        kept = each.plan.request.version if because else ""
        come = self._due.pop(name, [])
        actions = controller.advance(each, come, self.now, because, kept)
        if self.random.random() < restarts:
            # The master dies: what was stored is there, what was to be done is not.
            self.stored.kept[name] = each = rollout.taken_up(_read_again(each), self.now)
            actions = [action for action in actions if self.random.random() < 0.5]
        self._do(each, actions)
        self._check(each)

    def _do(self, each: Rollout, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Ask):
                for name in action.minions:
                    self._answer(each, name, action.question)
            elif isinstance(action, Start):
                host = self.hosts[action.minion]
                if host.there(self.now):
                    known = host.number
                    refused = host.take(action.number, action.goal, self.now)
                    if host.number != known:
                        self._moving[host.name] = host
                        self._check_start(each, host)
                    self._answer(each, action.minion, action.question, refused)
            elif isinstance(action, Cancel) and self.hosts[action.minion].there(self.now):
                self.hosts[action.minion].cancel(action.number)
                self._answer(each, action.minion, action.question)
            elif isinstance(action, Quarantine):
                self.stored.quarantine[action.version] = action.because
                each.kept = True
            elif isinstance(action, Stage):
                for name in action.minions:
                    self.hosts[name].staged = "done"

    def _answer(self, each: Rollout, name: str, question: int, refused: str = "") -> None:
        host = self.hosts[name]
        if host.there(self.now):
            self._due.setdefault(each.plan.id, []).append(host.report(question, refused))

    # -- the policy ----------------------------------------------------------------------

    def known(self) -> Known:
        there = {n: h for n, h in self.hosts.items() if h.since <= self.now}
        heard = frozenset(n for n, h in there.items() if h.there(self.now))
        active = [each for each in self.stored.kept.values() if not each.mode.final]
        wanted = [group.wanted for group in self.policy.groups]
        goals = {each.version or each.extension for each in wanted}
        return Known(
            members={g: [n for n in names if n in there] for g, names in self.members.items()},
            records={n: self._record(there[n]) for n in heard},
            heard=heard,
            now=self.now,
            master="3009.9",
            rollouts={each.plan.id: each.mode.value for each in active},
            taken={m: each.plan.id for each in active for m in each.minions},
            quarantined=self.stored.quarantine,
            given_up=given_up.by_goal(self.stored, goals, self.now),
        )

    def _record(self, host: Life) -> inventory.Record:
        phase = "idle" if host.phase == "hangs" else host.phase
        there = self._records.get(host.name)
        now = (host.version, phase, host.extension, host.held)
        if there and (there.running, there.phase, there.extension, there.held) == now:
            return there
        answer = {"running": host.version, "installed": host.version, "phase": phase}
        answer |= {"extension": host.extension, "held": host.held}
        self._records[host.name] = inventory.from_answer(host.name, answer, self.now)
        return self._records[host.name]

    def _step(self) -> None:
        self.standings = policy.look(self.policy, self.known())
        groups = {group.name: group for group in self.policy.groups}
        for each in policy.following(self.standings):
            facts = {
                name: plan.Facts(version=self.hosts[name].version)
                for name in each.bring
                if self.hosts[name].there(self.now)
            }
            name, number = f"r{len(self.begun):06}", int(self.now * 1e6)
            wanted = policies.request_of(groups[each.group], each)
            more = {"plan_id": name, "number": number, "now": self.now}
            try:
                made = plan.make(wanted, {each.group: list(each.bring)}, facts, **more)
            except InputError as err:
                # Of so few, a share is less than one: the next group may begin.
                self.refused[each.group] = str(err)
                continue
            self.stored.kept[name] = rollout.begin(made, self.now, first=number)
            self.begun.append((self.now, each.group))
            self.refused.pop(each.group, None)
            return

    def _somebody_looks(self) -> None:
        """Mend who is down, and have what stands go on, or end it if its version is bad."""
        for host in self.hosts.values():
            if host.phase in ("failed", "hangs"):
                host.phase = "rolled_back"
        for each in self.stored.kept.values():
            if each.mode is Mode.STOPPED:
                if each.plan.request.version in self.stored.quarantine:
                    self._do(each, steering.abort(each, "it is bad", self.now))
                else:
                    steering.resume(each, self.now)

    # -- what is to hold -----------------------------------------------------------------

    def _check(self, each: Rollout) -> None:
        known = each.minions
        busy = [n for n in known if self.hosts[n].busy and not known[n].forgiven]
        assert len(busy) <= each.plan.unavailable, (each.plan.id, busy)
        assert each.mode.final or sum(
            not other.mode.final for other in self.stored.kept.values()
        ) <= (len(self.policy.groups) if self.policy.side_by_side else 1)

    def _check_start(self, each: Rollout, host: Life) -> None:
        wanted = each.plan.of(host.name)
        assert window.is_open(wanted.windows, self.now, wanted.closed), "outside of its windows"
        assert not host.held
        assert each.plan.request.version not in self.stored.quarantine or each.because
        self.taken.append((self.now, host.name))

    def check_calm(self) -> None:
        """Assert that nobody is updated again and again, and that each is there or says why not."""
        for day in {int(at // DAY) for at, _ in self.taken}:
            within = Counter(name for at, name in self.taken if at // DAY == day)
            for name, often in within.items():
                assert often <= (given_up.MOST_TIMES + 1 if self.hosts[name].each else 2), (
                    name,
                    often,
                )
        undone = {host.name for host in self.hosts.values() if host.each}
        seen: set[str] = set()
        for each in policy.look(self.policy, self.known()):
            rest = set(each.bring) - undone
            assert not rest or each.waits or each.group in self.refused, (
                each.group,
                sorted(rest)[:5],
            )
            for name in set(self.members[each.group]) - seen:
                host = self.hosts[name]
                there = host.version == each.version or name in each.left or name in each.bring
                assert there or host.since > self.now, (name, host.version)
            seen |= set(self.members[each.group])

    def versions(self) -> Counter[str]:
        return Counter(host.version for host in self.hosts.values())

    def copy(self) -> Weeks:
        """Return the same at this moment, from what is stored only."""
        hosts = [dataclasses.replace(host, taken=list(host.taken)) for host in self.hosts.values()]
        made = Weeks(hosts, {"groups": [{"name": "x", "target": "*", "version": "1"}]}, {})
        made.policy, made.members, made.now = self.policy, self.members, self.now
        made.stored.quarantine = dict(self.stored.quarantine)
        made.stored.kept = {name: _read_again(each) for name, each in self.stored.kept.items()}
        made.begun = list(self.begun)
        return made


def _read_again(each: Rollout) -> Rollout:
    """Return what an engine reads that finds it: as it is stored, row by row."""
    made = stored.plan(plan.to_data(each.plan))
    return stored.rollout(made, stored.head(each), [list(row) for row in stored.rows(each)])
