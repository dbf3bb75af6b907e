"""A master in one process, with real hooks, account, cache and keys, and simulated minions."""

import json

import salt.config

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.prepare.resolution import refuse_quarantined
from saltext_safeupdate.core.record import kept
from saltext_safeupdate.core.record.store import Quarantined
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
    *silent* hears nothing. If *quarantines* is set, each keeps a version in quarantine that it was
    rolled back or taken back from, and refuses it, as real minions do.
    """

    quarantines = False

    def __init__(self, names):
        self.hosts = {name: Host(name, takes=20.0) for name in names}
        self.silent, self.findings, self.failing = set(), {}, {}
        self.going_back = set()
        self.most_busy = 0

    def hears(self, name, fun, arg, now):
        """Return what a minion answers, and whether it is an answer."""
        host = self.hosts[name]
        self._live(host, now)
        if name in self.failing:
            return self.failing[name], False
        given = arg[0] if arg else {}
        question = given.get("question", 0) if isinstance(given, dict) else 0
        refused = ""
        if fun == "safeupdate.request":
            goal = (given["version"], given["extension"])
            new = given["number"] > host.number
            refused = self._refusal(host, goal[0]) if new else ""
            refused = refused or host.take(given["number"], goal, now)
            if new and not refused:
                self.going_back.discard(name)
                self.going_back.update([name] if given.get("back") else [])
        elif fun == "safeupdate.withdraw":
            host.cancel(given["number"])
        elif fun == "safeupdate.prefetch":
            host.staged = "done"
        elif fun == "safeupdate.unquarantine":
            host.kept.remove(given)
            return [f"salt {given}"], True
        elif fun == "safeupdate.plan":
            found = list(self.findings.get(name, []))
            if why := self._refusal(host, given.get("version")):
                found.append({"code": "quarantined", "problem": why, "fix": "", "blocking": True})
            return {
                "findings": found,
                "steps": ["10-x"],
                "reboot": name == "m0",
            }, True
        self.most_busy = max(self.most_busy, sum(each.busy for each in self.hosts.values()))
        found = vars(host.report(question, refused)) | {"quarantined": list(host.kept)}
        return {key: value for key, value in found.items() if key != "minion"}, True

    def _live(self, host, now):
        """Let time go by there, up to the end of its update."""
        phase, version = host.phase, host.version
        host.live(now)
        left = ""
        if self.quarantines and host.phase != phase:
            if host.phase == "rolled_back":
                left = host.goal[0]
            elif host.phase == "committed" and host.name in self.going_back:
                left = version
        if left not in ("", host.version, *host.kept):
            host.kept.append(left)

    def _refusal(self, host, version):
        """Return why it does not install a version, as minions say it; empty if it does."""
        rows = [Quarantined("salt-minion", each, "1", "it was ill", 0.0) for each in host.kept]
        try:
            refuse_quarantined({"salt-minion": version}, {"salt-minion": host.version}, rows)
        except InputError as err:
            return str(err) if self.quarantines else ""
        return ""


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
        self.forget = list
        # A day takes ten thousand looks into the account; to open it takes longer than to look.
        kept.begin()
        self.start()

    def start(self):
        """Begin as a new engine does, with nothing but what is stored."""
        self.account.anchor_anew()
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
            forget=self._forget_deleted,
            clock=self._clock,
            since_boot=self._clock,
        )
        self.desk.orders |= dict.fromkeys(rollouts.ORDERS, self.driving.take)

    def _forget_deleted(self):
        return self.forget()

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
        # One for all looks: with each new one, Salt loads its caches anew.
        store = self.store()
        for _ in range(most):
            self.tick()
            if store.outline(name).mode.value in modes:
                return store.rollout(name)
        found = store.rollout(name)
        raise AssertionError((found.mode, found.why, found.history[-5:]))

    def status(self, name):
        return exit_status(self.store().rollout(name))

    def close(self):
        kept.end()
        self.notes.close()
        self.answers.close()
