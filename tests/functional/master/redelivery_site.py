"""
A master in one process, and minions that hear it with Salt's own matchers.

The account, the hooks, the engine, the question to minions and who is meant are real; so is the
list of minions that Salt waits for, if there are keys. Only what lies between them is not.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
from types import SimpleNamespace
from unittest import mock

import salt.cache
import salt.config
import salt.loader
import salt.minion
import salt.payload
import salt.utils.minions
from salt.exceptions import PublishError

from saltext_safeupdate.admin.status import jobs
from saltext_safeupdate.core.generations.absence import Absence
from saltext_safeupdate.core.jobs.functions import FIND_JOB, QUERY
from saltext_safeupdate.master import redelivery
from saltext_safeupdate.master.account import Account
from saltext_safeupdate.master.calls import Calls
from saltext_safeupdate.master.engine import Desk
from saltext_safeupdate.master.follower import Follower
from saltext_safeupdate.master.hooks import Keeper
from saltext_safeupdate.master.notes import Notes
from saltext_safeupdate.master.questions import Questions

WINDOW, PATIENCE = 300.0, 10.0
_numbers = itertools.count()


class Ears(salt.minion.Minion):
    """What of a minion decides whether a publication is for it."""

    def __init__(self, opts):
        self.opts = opts
        self.refresh()

    def refresh(self):
        """Load matchers, as Salt does when grains or pillar have changed."""
        # Those of other minions in this process must not be the same modules.
        self.matchers = salt.loader.matchers(self.opts, loaded_base_name=f"ears{next(_numbers)}")

    def __del__(self):
        """Nothing was begun."""


class Host:
    """
    A minion that runs each job once.

    *up*: it hears. *mute*: its returns are lost. *ran*: jobs that it has, with what it was given.
    *until*: when those that take a while end.
    """

    def __init__(self, site, name, grains=None, pillar=None):
        self.site, self.name = site, name
        self.up, self.mute, self.ran, self.until = True, False, {}, {}
        self.left = self.back = 0.0
        self.restarted = self.was_mute = False
        self.opts = salt.config.DEFAULT_MINION_OPTS.copy()
        self.opts.update(
            id=name, cachedir=str(site.path / name), grains=grains or {}, pillar=pillar or {}
        )
        self.ears = Ears(self.opts)
        ledger = SimpleNamespace(exists=lambda: True, known=self._known)
        self._host = SimpleNamespace(
            opts=self.opts,
            ledger=ledger,
            store=None,
            services=None,
            settings=SimpleNamespace(service="salt-minion"),
        )

    def _known(self, wanted, **_):
        return {jid: "delivered" for jid in wanted if jid in self.ran}

    def leaves(self, *, restarted):
        if self.up:
            self.up, self.left, self.restarted = False, self.site.now, restarted

    def comes(self):
        if not self.up:
            self.up, self.back = True, self.site.now
            start = {"id": self.name, "tag": f"salt/minion/{self.name}/start"}
            self.site.run_func(self, "_minion_event", start)

    def _away(self, *_):
        """Say what the minion's own record says, which has tests of its own."""
        now = self.site.now
        return [Absence(now - self.left, now - self.back)] if self.restarted else []

    @property
    def is_off(self):
        return not self.up and not self.restarted

    def hears(self, load):
        """Tell whether Salt runs this on it. Salt writes into what it is given."""
        return bool(self.ears._target_load(dict(load)))

    def gets(self, load):
        if not self.up or not self.hears(load):
            return
        if load["fun"] == QUERY:
            with mock.patch.object(jobs.absence, "of", self._away):
                value = jobs.accepted(self._host, *load["arg"])
        elif load["fun"] == FIND_JOB:
            running = self.until.get(load["arg"][0], 0.0) > self.site.now
            value = {"jid": load["arg"][0]} if running else {}
        elif load["jid"] in self.ran:
            return
        else:
            value = self.ran[load["jid"]] = load["arg"]
            self.site.was_run(self, load)
        if not self.mute:
            ret = {"id": self.name, "jid": load["jid"], "fun": load["fun"], "return": value}
            self.site.run_func(self, "_return", ret)
            self.site.returned(self, ret)


class Site:
    """A master in one process, and the minions that hear it."""

    def __init__(self, path):
        self.path, self.now = path, 100.0
        self.account, self.calls = self.open(), Calls(self.open())
        self.notes, self.answers = Notes(), Notes()
        self.keeper = Keeper(self.account, self.notes, self.answers)
        table = {p.name: p.replace for p in self.keeper.table()}
        self.prep_pub = table["_prep_pub"](self.salts_prep_pub)
        self.send_pub = table["_send_pub"](self.salts_send_pub)
        self.run_func = table["run_func"](lambda *_: None)
        self.published, self.hosts, self.opts = [], {}, {}
        self.runs = []
        self.account.begin_anew()
        self.start()

    def add(self, *names, **more):
        for name in names:
            self.hosts[name] = Host(self, name, **more)

    def close(self):
        self.notes.close()
        self.answers.close()

    def open(self):
        path = str(self.path / "account.db")
        return Account(path, since_boot=lambda: self.now, busy_timeout=0.01)

    @contextlib.contextmanager
    def locked(self):
        """Have another process write into the account all the time."""
        with self.open().transaction():
            yield

    def start(self):
        """Start the engine, perhaps again: with its master, so notes of before are gone."""
        while self.notes.read(0):
            """Nobody hears them."""
        self.engine = Follower(
            self.worker(),
            self.open(),
            self.calls,
            window=WINDOW,
            patience=PATIENCE,
            clock=lambda: self.now,
        )
        asking = Questions(self.worker().question, str, clock=lambda: self.now)
        self.desk = Desk(asking, self.calls, self.answers, clock=lambda: self.now)
        self.desk.orders[redelivery.REDELIVER] = self.engine.take

    def worker(self):
        work = redelivery.Redelivery({"cachedir": str(self.path)}, self.open())
        work._client = self
        return work

    @property
    def there(self):
        return {name for name, host in self.hosts.items() if host.up}

    @there.setter
    def there(self, names):
        for name, host in self.hosts.items():
            host.comes() if name in names else host.leaves(restarted=True)

    # -- Salt's master ---------------------------------------------------------

    def with_keys(self):
        """Have Salt's own code say for whom it waits; return its options."""
        self.opts = salt.config.DEFAULT_MASTER_OPTS.copy()
        pki = self.path / "pki"
        self.opts.update(
            cachedir=str(self.path / "cache"), root_dir=str(self.path), pki_dir=str(pki)
        )
        self.opts.update(id="m_master", __role="master")
        for place in ("minions", "minions_pre", "minions_rejected", "minions_denied"):
            (pki / place).mkdir(parents=True)
        for name in self.hosts:
            (pki / "minions" / name).write_text("key")
        return self.opts

    def remember(self, name, grains, pillar):
        """Have the master know these grains and pillar of a minion, where each Salt keeps them."""
        cache = salt.cache.factory(self.opts)
        cache.store("grains", name, grains)
        cache.store("pillar", name, pillar)
        cache.store(f"minions/{name}", "data", {"grains": grains, "pillar": pillar})

    def waited_for(self, tgt, tgt_type, delimiter=":"):
        if "pki_dir" not in self.opts:
            return sorted(tgt)
        checker = salt.utils.minions.CkMinions(self.opts)
        return sorted(checker.check_minions(tgt, tgt_type, delimiter)["minions"])

    @staticmethod
    def salts_prep_pub(master, minions, jid, load, extra, missing):
        made = {key: load[key] for key in ("fun", "arg", "tgt", "tgt_type", "user")}
        if extra.get("delimiter", ":") != ":":
            made["delimiter"] = extra["delimiter"]
        return {**made, "jid": jid, "ret": ""}

    def salts_send_pub(self, master, load):
        # What goes over the network has no tuples.
        load = salt.payload.loads(salt.payload.dumps(load))
        self.published.append(load)
        for host in list(self.hosts.values()):
            host.gets(load)

    def pub(self, tgt, fun, arg, tgt_type="list", jid="", **extra):
        """Publish as LocalClient and the request server do."""
        jid = jid or f"query{len(self.published)}"
        user = extra.pop("user", "root")
        minions = self.waited_for(tgt, tgt_type, extra.get("delimiter", ":"))
        if minions:
            load = {"fun": fun, "arg": arg, "tgt": tgt, "tgt_type": tgt_type, "user": user}
            real = "pki_dir" in self.opts
            with contextlib.suppress(PublishError) if real else contextlib.nullcontext():
                self.send_pub(self, self.prep_pub(self, minions, jid, load, extra, []))
        return {"jid": jid, "minions": minions}

    # -- what happens ----------------------------------------------------------

    def was_run(self, host, load):
        self.runs.append((host.name, load["jid"]))

    def returned(self, host, load):
        """See a return as whoever has published the job does."""

    def pause(self, seconds=1.0):
        self.now += seconds
        self.engine.heard(self.notes.read(0))
        self.engine.tick()
        self.desk.tick()

    def redeliver(self, *minions):
        return redelivery.redeliver(
            Calls(self.open()), minions, 5.0, clock=lambda: self.now, pause=lambda _: self.pause()
        )


def placed(path) -> pathlib.Path:
    """Return a directory of its own below *path*."""
    made = pathlib.Path(path) / f"site{len(list(pathlib.Path(path).iterdir()))}"
    made.mkdir()
    return made
