"""
Those that run a job are among those that Salt's own matcher on the minion means, and run it once.

Whatever the target is, whatever the master knows of grains and pillar, and whatever is lost,
restarted and published again. Both Salt's code for whom a master waits and that for whom a minion
is meant are real.

No job runs on a minion after its caller has given the minion up, or somebody has ended the job, or
on a host that was off when it was published. Those that came while a minion was restarted run.
"""

import contextlib
import pathlib
import tempfile

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from saltext_safeupdate.core.jobs.functions import FIND_JOB
from saltext_safeupdate.master import account as accounts
from saltext_safeupdate.master import aiming
from saltext_safeupdate.master.aiming import Target, Undecidable
from tests.functional.master.redelivery_site import PATIENCE, Ears, Site

NAMES = ("db1", "web1", "web2")
NODEGROUP = ["(", "G@os:Debian", "or", "L@db1", ")"]
# What minions are, and what a master may believe that they are.
KINDS = (
    {"grains": {"os": "Debian", "roles": ["web", "a|b"], "ipv4": ["10.0.0.1"]}, "env": "prod"},
    {"grains": {"os": "RedHat", "roles": ["db"], "ipv4": ["10.99.0.1"]}, "env": "test"},
)
# Each way to target, and what may be meant by it.
TARGETS = (
    ("*", "glob", ":"),
    ("web[12]", "glob", ":"),
    ("web.", "pcre", ":"),
    (["web1", "nobody", "db1"], "list", ":"),
    ("web2,db1", "list", ":"),
    ("os:Debian", "grain", ":"),
    ("os|RedHat", "grain", "|"),
    ("roles|a|b", "grain", "|"),
    ("os:D.*", "grain_pcre", ":"),
    ("env:prod", "pillar", ":"),
    ("env@prod", "pillar", "@"),
    ("env:pro", "pillar_pcre", ":"),
    ("env:prod", "pillar_exact", ":"),
    ("10.99.0.0/16", "ipcidr", ":"),
    ("10.0.0.1", "ipcidr", ":"),
    ("not G@os:Debian", "compound", ":"),
    ("not I@env:prod", "compound", ":"),
    ("web* and not S@10.0.0.0/16", "compound", ":"),
    ("G|@os|Debian or ( J@env:te.t and not E@db1 )", "compound", ":"),
    (NODEGROUP, "compound", ":"),
    (["not", *NODEGROUP], "compound", ":"),
    ("web* ) or ( *", "compound", ":"),
    ("web* db*", "compound", ":"),
    ("and web*", "compound", ":"),
    ("", "compound", ":"),
    ("env:prod", "compound_pillar_exact", ":"),
    ("%web", "range", ":"),
)


def grains_of(kind):
    return dict(KINDS[kind]["grains"])


def pillar_of(kind):
    return {"env": KINDS[kind]["env"]}


def is_it(site, name, kind):
    """Make a minion what it is, or something else; Salt loads its matchers anew then."""
    host = site.hosts[name]
    host.opts.update(grains=grains_of(kind), pillar=pillar_of(kind))
    host.ears.refresh()


class World(Site):
    """It looks at each run whether it may be."""

    def __init__(self, path, kinds, known, cached):
        super().__init__(path)
        self.originals, self.ends, self.callers, self.off = {}, {}, {}, set()
        self.has_lost = False
        self.add(*NAMES)
        self.account.set_fact(accounts.ENGINE, "started")
        self.with_keys()["minion_data_cache"] = cached
        for name, kind in zip(NAMES, kinds, strict=True):
            is_it(self, name, kind)
        for name, kind in zip(NAMES, known, strict=True):
            if kind is not None:
                self.remember(name, grains_of(kind), pillar_of(kind))

    def order(self, target, number, waits, fun="test.echo", arg="x"):
        tgt, kind, delimiter = target
        jid = f"2026010112000000{number:04}"
        more = {} if delimiter == ":" else {"delimiter": delimiter}
        self.originals[jid] = {"fun": fun, "arg": [arg], "tgt": tgt, "tgt_type": kind}
        self.originals[jid] |= {"jid": jid, **more}
        self.off |= {(host.name, jid) for host in self.hosts.values() if host.is_off}
        if waits:
            self.callers[jid] = Caller(self, jid)
        minions = self.pub(tgt, fun, [arg], kind, jid, **more)["minions"]
        if waits:
            self.callers[jid].begins(minions)
        return jid, minions

    def end(self, ended, target, number, unwritten):
        """Publish what ends a job; *unwritten*: the account cannot be written."""
        with self.locked() if unwritten else contextlib.nullcontext():
            jid, minions = self.order(target, number, False, "saltutil.kill_job", ended)
            self.has_lost |= unwritten and bool(minions)
        self.ends[jid] = ended, set(minions)
        return jid, minions

    def pause(self, seconds=1.0):
        """Let time pass, a second at a time for those who wait."""
        for _ in range(max(1, int(seconds))):
            super().pause(1.0)
            for caller in list(self.callers.values()):
                caller.looks()

    def was_run(self, host, load):
        super().was_run(host, load)
        jid = load["jid"]
        assert host.hears(self.originals[jid]), f"{host.name} runs {load}"
        assert self.runs.count((host.name, jid)) == 1
        assert not is_over(self, host, jid)
        assert (host.name, jid) not in self.off
        assert jid not in self.callers or host.name not in self.callers[jid].given_up
        host.until[jid] = self.now + 20.0

    def returned(self, host, load):
        if load["fun"] == FIND_JOB:
            for caller in self.callers.values():
                caller.hears(host.name, load)


class Caller:
    """Waits for a job as Salt's LocalClient.get_iter_returns does, and gives minions up."""

    def __init__(self, site, jid):
        self.site, self.jid = site, jid
        self.minions, self.given_up = set(), set()
        self.question, self.until, self.running, self.asked = "", site.now + 5.0, set(), 0

    def begins(self, minions):
        self.minions = set(minions)
        # This one returns a job as soon as it is over; see Host.gets.
        self.until = self.site.now + 5.0

    def looks(self):
        for name in list(self.minions):
            host = self.site.hosts[name]
            if self.jid in host.ran and self.site.now >= host.until.get(self.jid, 0.0):
                self.minions.discard(name)
        if self.site.now < self.until or not self.minions:
            return
        if self.question:
            assert not any(map(self._could_have_said, self.minions - self.running))
            self.given_up |= self.minions - self.running
            self.minions &= self.running
        if not self.minions:
            return
        self.asked, self.running = self.asked + 1, set()
        self.question = f"{self.jid[:-8]}9{self.jid[-4:]}{self.asked:03}"
        self.until = self.site.now + PATIENCE
        self.site.pub(sorted(self.minions), FIND_JOB, [self.jid], jid=self.question)

    def _could_have_said(self, name):
        """Tell whether it runs the job, and has been there for long enough to say so."""
        host = self.site.hosts[name]
        is_running = host.up and host.until.get(self.jid, 0.0) > self.site.now
        in_time = host.back < self.until - 0.7 * PATIENCE
        return is_running and in_time and not host.was_mute and not self.site.has_lost

    def hears(self, minion, load):
        if load["jid"] == self.question and load["return"]:
            self.running.add(minion)


WORLDS = {
    "kinds": st.tuples(*[st.sampled_from((0, 1))] * 3),
    "known": st.tuples(*[st.sampled_from((0, 1, None))] * 3),
    "cached": st.booleans(),
    "events": st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.sampled_from(TARGETS), st.booleans()),
            st.tuples(st.just("publish"), st.sampled_from(TARGETS), st.booleans()),
            st.tuples(st.just("end"), st.sampled_from(TARGETS), st.booleans()),
            st.tuples(
                st.sampled_from(["comes", "restarts", "stops", "mute", "heard"]),
                st.sampled_from(NAMES),
            ),
            st.tuples(st.just("becomes"), st.sampled_from(NAMES), st.sampled_from((0, 1))),
            st.tuples(st.just("wait"), st.sampled_from([1.0, 4.0, 20.0])),
            st.tuples(st.just("engine")),
            st.tuples(st.just("redeliver")),
        ),
        min_size=3,
        max_size=12,
    ),
}
# What was seen: grains that the master has lost, and a host in another network that ran it.
SEEN = {
    "kinds": (0, 0, 1),
    "known": (None, None, None),
    "cached": False,
    "events": [("restarts", "web1"), ("publish", ("not G@os:Debian", "compound", ":"), False)],
}
# Jobs that were ended on a minion before an engine starts again, which knows of it or does not.
ENDED = {
    "kinds": (0, 0, 1),
    "known": (0, 0, 0),
    "cached": False,
    "events": [
        ("publish", ("os:Debian", "grain", ":"), False),
        ("redeliver",),
        ("end", ("*", "glob", ":"), False),
        ("becomes", "web2", 0),
        ("redeliver",),
        ("engine",),
    ],
}
WRITTEN = [
    ("restarts", "web1"),
    ("restarts", "web2"),
    ("publish", ("*", "glob", ":"), False),
    ("comes", "web1"),
    ("end", (["web1", "nobody", "db1"], "list", ":"), False),
    ("wait", 1.0),
    ("wait", 6.0),
    ("engine",),
]
# One that waits, and minions that come back before it asks, while it waits, and after that.
WAITS = [
    ("restarts", "web1"),
    ("restarts", "web2"),
    ("restarts", "db1"),
    ("publish", ("*", "glob", ":"), True),
    ("wait", 4.0),
    ("comes", "web1"),
    ("wait", 3.0),
    ("comes", "web2"),
    ("wait", 20.0),
    ("comes", "db1"),
]
# A master that is started again before the minion that has come back has answered.
BETWEEN = [
    ("restarts", "web1"),
    ("publish", ("*", "glob", ":"), False),
    ("comes", "web1"),
    ("engine",),
]
# The end of a job that could not be written down.
FORGOTTEN = [
    ("restarts", "web1"),
    ("publish", ("*", "glob", ":"), False),
    ("end", ("*", "glob", ":"), True),
    ("comes", "web1"),
]
# One that was off, and one to which a publication came before it was.
OFF = [
    ("publish", ("*", "glob", ":"), False),
    ("stops", "db1"),
    ("publish", ("*", "glob", ":"), False),
    ("wait", 4.0),
    ("comes", "db1"),
]


@pytest.mark.parametrize(
    "count", [12, pytest.param(1000, marks=pytest.mark.soak)], ids=["short", "long"]
)
def test_only_who_is_meant_runs_a_job_and_once(count):
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @example(**SEEN)
    @example(**ENDED)
    @example(**{**ENDED, "events": WRITTEN})
    @example(**{**ENDED, "events": WAITS})
    @example(**{**ENDED, "events": OFF})
    @example(**{**ENDED, "events": BETWEEN})
    @example(**{**ENDED, "events": FORGOTTEN})
    @example(**{**SEEN, "cached": True, "known": (1, 1, 1)})
    @given(**WORLDS)
    def whatever_happens(kinds, known, cached, events):
        with tempfile.TemporaryDirectory() as path:
            world = World(pathlib.Path(path), kinds, known, cached)
            try:
                play(world, events)
            finally:
                world.close()

    whatever_happens()


def play(world, events):
    waited, changed = {}, set()
    for number, (what, *values) in enumerate(events):
        if what == "publish" or (what == "end" and waited):
            newest = list(waited)[-1:]
            jid, minions = (
                world.end(*newest, *values, number)
                if what == "end"
                else world.order(values[0], number, values[1])
            )
            waited[jid] = set(minions)
        elif what == "end":
            """There is nothing to end."""
        elif what == "becomes":
            is_it(world, *values)
            changed.add(values[0])
        elif what == "wait":
            world.pause(*values)
        elif what == "engine":
            world.start()
        elif what == "redeliver":
            world.redeliver(*NAMES)
        elif what in ("restarts", "stops"):
            world.hosts[values[0]].leaves(restarted=what == "restarts")
        elif what == "comes":
            world.hosts[values[0]].comes()
        else:
            host = world.hosts[values[0]]
            host.mute = what == "mute"
            host.was_mute |= host.mute
    for host in world.hosts.values():
        host.mute = False
        host.comes()
    world.pause(8.0)
    # Whoever was waited for and is meant has it, if a compound target can say who that is.
    for jid, minions in waited.items():
        for name in minions - changed:
            host = world.hosts[name]
            if host.hears(world.originals[jid]) and can_go_out(world.originals[jid]):
                over = is_over(world, host, jid) or is_given_up(world, host, jid)
                assert over or world.has_lost or jid in host.ran, (name, jid)


def is_over(world, host, jid):
    """Tell whether the job was to be ended on that minion, whether it has heard of that or not."""
    return (jid, True) in ((ended, host.name in minions) for ended, minions in world.ends.values())


def is_given_up(world, host, jid):
    """Tell whether that host was off, or whoever has published it asked after it in vain."""
    caller = world.callers.get(jid)
    missed_a_question = caller is not None and caller.asked > 0
    return (host.name, jid) in world.off or missed_a_question


def can_go_out(load):
    try:
        aiming.check(aiming.of(load))
    except Undecidable:
        return False
    return True


@pytest.fixture(scope="module")
def ears():
    """Minions of each kind, by name, kind and address."""
    import salt.config

    made = []
    for name in NAMES:
        for kind in range(len(KINDS)):
            opts = salt.config.DEFAULT_MINION_OPTS.copy()
            opts.update(id=name, grains=grains_of(kind), pillar=pillar_of(kind))
            made.append(Ears(opts))
    return made


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_what_goes_out_again_means_the_same_on_the_minion(ears, target):
    """Beside the names of minions that it is for; whom Salt means by nothing gets nothing."""
    load = {"fun": "test.echo", "arg": [], "jid": "1"}
    tgt, kind, delimiter = target
    original = {**load, "tgt": tgt, "tgt_type": kind, "delimiter": delimiter}
    try:
        aiming.check(Target(*target))
    except Undecidable:
        assert not any(each._target_load(dict(original)) for each in ears)
        return
    for each in ears:
        name = each.opts["id"]
        words = aiming.again(Target(*target), [name]) if kind != "list" else None
        if words is None:
            listed = aiming.narrowed(Target(*target), [name]).tgt
            words = aiming.again(Target(*target), [name]) if listed else ["L@nobody"]
        again = {**load, "tgt": words, "tgt_type": "compound"}
        assert each._target_load(dict(again)) == each._target_load(dict(original)), words
        other = aiming.again(Target("*"), ["other"])
        words = [*other, "and", "(", *words, ")"]
        assert not each._target_load({**again, "tgt": words})


@pytest.mark.parametrize(
    "target",
    [
        Target("os::Debian", "grain", "::"),
        Target("env:pro*", "pillar_exact"),
        Target("not", "glob"),
        Target("G@os:Debian", "glob"),
        Target("T@ssh:web1", "compound"),
        Target("web* or M@web1", "compound"),
        Target(["a", 5], "compound"),
        Target("a\nb", "glob"),
        Target(["x\ny"], "compound"),
        Target("x" * aiming.LONGEST, "glob"),
        Target(5, "list"),
        Target(None, "pcre"),
    ],
    ids=str,
)
def test_what_a_compound_target_cannot_say_does_not_go_out_again(target):
    with pytest.raises(Undecidable):
        aiming.check(target)


def test_ids_that_could_be_taken_for_others_get_nothing_again():
    for odd in ("web1,db1", "web1\ndb1", "web\x1b1", "web\u202e1"):
        with pytest.raises(Undecidable):
            aiming.again(Target("*"), [odd, "db1"])


def test_many_publications_of_one_target_are_one_question():
    targets = {1: Target("*"), 2: Target(["a", "b", "c"], "list"), 3: Target("*")}
    ages = {1: 3.0, 2: 2.0, 3: 1.0}
    asked = aiming.asked(targets, {1: "10", 2: "20", 3: "30"}, ages, ["b", "d"])
    assert [(aim["tgt"], aim["jobs"]) for aim in asked] == [
        ("*", {"1": "10", "3": "30"}),
        (["b"], {"2": "20"}),
    ]
