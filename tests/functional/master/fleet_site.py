"""A master in one process, with real hooks, account, cache and keys, and simulated minions."""

import json

import salt.config

from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.fleet.summary import exit_status
from saltext_safeupdate.master import account as accounts
from saltext_safeupdate.master import planning, questions, rollouts
from saltext_safeupdate.master.account import Account, path_of
from saltext_safeupdate.master.calls import Calls, call
from saltext_safeupdate.master.engine import Desk
from saltext_safeupdate.master.gatekeeper import Gatekeeper
from saltext_safeupdate.master.hooks import Keeper
from saltext_safeupdate.master.notes import Notes
from saltext_safeupdate.master.questions import Questions
from saltext_safeupdate.master.redelivery import Redelivery
from saltext_safeupdate.master.rollouts import Rollouts
from saltext_safeupdate.master.store import Store
from tests.unit.fleet.world import NEW, Host

WANTED = {"version": NEW, "soak": 0, "jitter": 0, "canaries": 1, "max_unavailable": 1}


class Time:
    """The one clock of all masters and minions."""

    now = 1_780_000_000.0


class Fleet:
    """
    Minions that take what is published to them.

    *findings* is what their pre-flights say, *lost* who does not hear what; whoever is in
    *silent* hears nothing.
    """

    def __init__(self, names):
        self.hosts = {name: Host(name, takes=20.0) for name in names}
        self.silent, self.findings, self.failing = set(), {}, {}
        self.most_busy = 0

    def hears(self, name, fun, arg, now):
        """Return what a minion answers, and whether it is an answer."""
        host = self.hosts[name]
        host.live(now)
        if name in self.failing:
            return self.failing[name], False
        given = arg[0] if arg else {}
        question = given.get("question", 0) if isinstance(given, dict) else 0
        refused = ""
        if fun == "safeupdate.request":
            goal = (given["version"], given["extension"])
            refused = host.take(given["number"], goal, now)
        elif fun == "safeupdate.withdraw":
            host.cancel(given["number"])
        elif fun == "safeupdate.prefetch":
            host.staged = "done"
        elif fun == "safeupdate.unquarantine":
            host.kept.remove(given)
            return [f"salt {given}"], True
        elif fun == "safeupdate.plan":
            return {
                "findings": self.findings.get(name, []),
                "steps": ["10-x"],
                "reboot": name == "m0",
            }, True
        self.most_busy = max(self.most_busy, sum(each.busy for each in self.hosts.values()))
        found = vars(host.report(question, refused)) | {"quarantined": list(host.kept)}
        return {key: value for key, value in found.items() if key != "minion"}, True


class Master:
    """One of the masters: its engine is started anew by :meth:`start`."""

    def __init__(self, path, cache, fleet, time, name="one"):
        self.fleet, self.time = fleet, time
        self.opts = salt.config.DEFAULT_MASTER_OPTS.copy()
        self.opts.update(
            id=f"{name}_master",
            cachedir=str(path / name),
            pki_dir=str(path / "pki"),
            root_dir=str(path),
            conf_file=str(path / "master"),
            fun="safeupdate.rollout",
            __role="master",
        )
        keys = path / "pki" / "minions"
        keys.mkdir(parents=True, exist_ok=True)
        for minion in fleet.hosts:
            (keys / minion).write_text("a key")
        self.cache = cache
        self.account = Account(path_of(self.opts))
        self.notes, self.answers = Notes(), Notes()
        table = {p.name: p.replace for p in Keeper(self.account, self.notes, self.answers).table()}
        self.run_func = table["run_func"](lambda *_: None)
        self.account.set_fact(accounts.ENGINE, "started")
        self.published, self.told, self.after_store = [], [], None
        # What gates say, by name, and who was asked.
        self.gates, self.asked_gates = {}, []
        self.start()

    def start(self):
        """Begin as a new engine does, with nothing but what is stored."""
        self.account.forget_tickets()
        work = Redelivery({}, self.account)
        work._client = self
        jids = iter(range(10**6))
        asking = Questions(work.question, lambda: f"jid{next(jids)}", clock=self._clock)
        self.desk = Desk(asking, Calls(Account(self.account.path)), self.answers, clock=self._clock)
        self.driving = Rollouts(
            self.store(),
            asking,
            lambda tag, data: self.told.append((tag, data)),
            rollouts.owner_of(self.account, self.opts["id"]),
            gates=Gatekeeper(self.opts, run=self._gate, beside=lambda work: work()),
            clock=self._clock,
            since_boot=self._clock,
        )
        self.desk.orders |= dict.fromkeys(rollouts.ORDERS, self.driving.take)

    def _gate(self, argv, *, timeout, **_):
        """Answer as the program of a gate does."""
        self.asked_gates.append(argv[-1])
        printed = json.dumps(dict(zip(("yes", "why"), self.gates[argv[-1]](), strict=True)))
        return Result(argv=tuple(argv), returncode=0, stdout=printed, stderr="")

    def _clock(self):
        return self.time.now

    def store(self):
        return Store({**self.opts, "cachedir": str(self.cache)})

    def pub(self, tgt, fun, arg, tgt_type, jid, **extra):
        self.published.append((fun, tgt, arg))
        for minion in tgt:
            if minion not in self.fleet.silent and self.fleet.hosts[minion].there(self.time.now):
                value, good = self.fleet.hears(minion, fun, arg, self.time.now)
                said = {"id": minion, "jid": jid, "fun": fun, "return": value, "success": good}
                self.run_func(self, "_return", said)

    def tick(self, seconds=1.0):
        self.time.now += seconds
        self.desk.tick()
        self.driving.tick()

    # -- what an administrator does ----------------------------------------------------

    def ask(self, opts, minions, fun, arg=(), timeout=5.0):
        return questions.ask(
            self.opts, minions, fun, arg, timeout, clock=self._clock, pause=lambda _: self.tick(0.2)
        )

    def plan(self, target="*", tgt_type="glob", *, at_once=False, **settings):
        given = settings if "back" in settings else {**WANTED, **settings}
        wanted = planning.requested(self.store(), target, tgt_type, given)
        return planning.make(
            self.opts,
            wanted,
            store=self.store(),
            at_once=at_once,
            ask=self.ask,
            clock=self._clock,
            # The first ones are the canaries.
            draw=lambda minions, count: minions[:count],
        )

    def order(self, what, name, **given):
        calls, more = Calls(self.account), {"rollout": name, **given}
        outcome, _ = call(calls, what, more, 5.0, clock=self._clock, pause=lambda _: self.tick(0.2))
        return outcome

    def check(self, plan, **more):
        return planning.check(
            self.opts, plan, store=self.store(), ask=self.ask, clock=self._clock, **more
        )

    def begin(self, plan):
        return self.order(rollouts.BEGIN, plan.id, plan=plan.id)["rollout"]

    def until(self, name, *modes, most=3000):
        """Let time go by until the rollout is in one of these modes; return it."""
        for _ in range(most):
            self.tick()
            found = self.store().rollout(name)
            if found.mode.value in modes:
                return found
        raise AssertionError((found.mode, found.why, found.history[-5:]))

    def status(self, name):
        return exit_status(self.store().rollout(name))

    def close(self):
        self.notes.close()
        self.answers.close()
