"""Runner, engine and the hooks of a master, with a real account and without the processes."""

import contextlib
import logging
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import salt.version

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.jobs.functions import FIND_JOB, QUERY
from saltext_safeupdate.master import account as accounts
from saltext_safeupdate.master import calls, engine, hooks, redelivery
from saltext_safeupdate.master.account import TICKET, Account, path_of
from saltext_safeupdate.master.calls import Calls
from tests.functional.master.redelivery_site import WINDOW, Site
from tests.support.forked import forked

SALT = salt.version.__saltstack_version__.info
JID, OTHER = "20260101120000000000", "20260101120000000001"


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    made.add("a", "b")
    made.there = set()
    made.account.set_fact(accounts.ENGINE, "started")
    yield made
    made.close()


def test_what_was_missed_is_published_as_it_was(site):
    site.pub(["a", "b"], "cmd.run", ["line"], jid=JID)
    site.there = {"a", "b"}
    assert site.redeliver("a", "b")["published"] == {JID: ["a", "b"]}
    again = site.published[-1]
    assert (again["fun"], again["arg"], again["user"]) == ("cmd.run", ["line"], "root")
    known = {JID: "delivered"}
    assert site.redeliver("a", "b") == {
        "published": {},
        "accepted": {"a": known, "b": known},
        "not_meant": {},
        "away": {},
        "given_up": {},
        "undecided": {},
        "no_answer": [],
        "not_set_up": [],
        "failed": {},
    }


def test_what_its_publisher_may_not_publish_any_more_is_refused_once(site, caplog):
    """And it keeps nothing else from going out, however much of it there is."""
    for number in range(15):
        site.pub(["a"], "cmd.run", ["line"], jid=f"{int(JID) + number}")
    site.opts = {"publisher_acl": {"bob": [".*"]}}
    site.keeper._config = ""
    site.pub(["a"], "cmd.run", ["allowed"], jid=f"{int(JID) + 99}")
    site.there = {"a"}
    report = site.redeliver("a")
    assert report["published"] == {f"{int(JID) + 99}": ["a"]}
    assert len(report["given_up"]) == 15
    assert report["failed"] == {}
    assert site.redeliver("a")["given_up"] == {}
    told = [text for text in caplog.messages if "is not published again" in text]
    assert len(told) == 15


def test_the_engine_does_it_by_itself_when_a_minion_starts(site):
    """Also an engine that has begun since."""
    site.there = {"a"}
    site.pub(["a", "b"], "cmd.run", ["line"], jid=JID)
    site.pause(60.0)
    site.start()
    before = len(site.published)
    site.there = {"a", "b"}
    for _ in range(3):
        site.pause()
    asked, again = site.published[before:]
    assert (asked["fun"], asked["tgt"]) == (QUERY, ["a", "b"])
    assert (again["jid"], again["tgt"], again["tgt_type"]) == (JID, ["b"], "list")


def test_a_host_that_was_off_gets_nothing_late(site):
    site.there = {"a", "b"}
    site.hosts["a"].leaves(restarted=False)
    site.pub(["a", "b"], "cmd.run", ["line"], jid=JID)
    site.pause(20.0)
    site.there = {"a", "b"}
    assert site.redeliver("a", "b")["away"] == {JID: ["a"]}
    assert site.runs == [("b", JID)]


@pytest.mark.parametrize("asks", [True, False])
def test_a_caller_that_does_not_wait_any_more_has_given_up(site, asks):
    """As 'salt -b 1', which continues with the next host, or a step that has failed."""
    site.pub(["a"], "cmd.run", ["line"], jid=JID)
    site.pause(5.0)
    if asks:
        site.pub(["a"], FIND_JOB, [JID], jid=OTHER)
    site.pause(10.0)
    site.there = {"a"}
    report = site.redeliver("a")
    assert report["given_up"] == ({JID: ["a"]} if asks else {})
    assert site.runs == ([] if asks else [("a", JID)])


def test_a_caller_that_waits_hears_that_the_job_runs(site):
    site.pub(["a"], "cmd.run", ["line"], jid=JID)
    site.pause(5.0)
    site.pub(["a"], FIND_JOB, [JID], jid=OTHER)
    site.pause(2.0)
    site.there = {"a"}
    for _ in range(4):
        site.pause()
    assert [load["jid"] for load in site.published[-2:]] == [JID, OTHER]


@pytest.mark.skipif(SALT < (3008,), reason="before 3008, masters drive no batches")
@pytest.mark.parametrize(
    ("driver", "active", "halted", "runs"),
    [
        ("master", ["b"], False, False),
        ("master", ["a"], False, True),
        ("master", ["a"], True, False),
        ("cli", ["b"], False, True),
    ],
)
def test_a_batch_of_the_master_gives_a_minion_up_without_a_question(
    site, driver, active, halted, runs
):
    from salt.utils import batch_state

    opts = {"cachedir": str(site.path)}
    state = {"driver": driver, "active": dict.fromkeys(active, 0.0), "halted": halted}
    Path(batch_state._batch_state_path(JID, opts)).parent.mkdir(parents=True)
    batch_state.write_batch_state(JID, state, opts)
    site.pub(["a"], "cmd.run", ["line"], jid=JID)
    site.there = {"a"}
    report = site.redeliver("a")
    assert site.runs == ([("a", JID)] if runs else [])
    assert report["given_up"] == ({} if runs else {JID: ["a"]})


@pytest.mark.parametrize("change", ["config", "token", "name", "none"])
def test_whoever_has_published_it_must_still_be_allowed_to(site, change):
    """Salt's own code says what an eauth or a token allows; here only its answers are given."""
    rights = {"alice": ["cmd.*"]}
    site.loadauth = SimpleNamespace(
        list_tokens=lambda: ["t1"] if "alice" in rights else [],
        get_tok=lambda token: {"name": "alice", "eauth": "pam"},
        get_auth_list=lambda load, token=None: rights.get(load.get("username") or load["name"]),
    )
    site.ckminions = SimpleNamespace(auth_check=lambda allowed, *_, **__: bool(allowed))
    extra = {"token": "t1"} if change == "token" else {"eauth": "pam"}
    site.pub(["a"], "cmd.run", ["line"], jid=JID, user="alice", **extra)
    if change == "config":
        site.opts = {"external_auth": {"pam": {}}}
    elif change != "none":
        rights.clear()
    site.there = {"a"}
    report = site.redeliver("a")
    assert site.runs == ([("a", JID)] if change == "none" else [])
    assert report["given_up"] == ({} if change == "none" else {JID: ["a"]})


def test_a_job_that_is_older_than_the_window_is_left_alone(site):
    site.pub(["a"], "cmd.run", ["line"], jid=JID)
    site.now += WINDOW + 1
    site.start()
    site.there = {"a"}
    assert site.redeliver("a")["published"] == {}
    assert list(site.open().since(0)) == []


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_the_zone_of_a_master_changes_no_age(tmp_path, monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    account = Account(str(tmp_path / "account.db"))
    account.published(JID, b"load", ["a"])
    monkeypatch.undo()
    time.tzset()
    (one,) = Account(account.path).since(0)
    assert 0 <= one.age < 600


def test_a_minion_that_is_silent_is_reported(site):
    site.pub(["a"], "cmd.run", ["line"], jid=JID)
    assert site.redeliver("a")["no_answer"] == ["a"]


def test_without_the_engine_nothing_is_published_and_the_runner_says_so(site, tmp_path):
    with pytest.raises(SafeUpdateError, match=r"Run 'salt-run safeupdate\.setup'"):
        redelivery.redeliver(Calls(Account(str(tmp_path / "other" / "account.db"))), ["a"], 5.0)
    site.pause = lambda: setattr(site, "now", site.now + 1)
    with pytest.raises(SafeUpdateError, match="does not answer"):
        site.redeliver("a")


def test_an_engine_that_has_ended_is_not_waited_for(site, tmp_path):
    site.pause = lambda: setattr(site, "now", site.now + 1)
    with engine.alone(site.account), pytest.raises(SafeUpdateError, match="does not answer"):
        site.redeliver("a")
    began = site.now
    with pytest.raises(SafeUpdateError, match="does not run, and nothing was started"):
        site.redeliver("a")
    assert site.now - began < calls.TAKEN_TIMEOUT / 2


@pytest.mark.parametrize("how", ["ended", "restarted"])
def test_an_engine_that_ends_over_a_request_is_told_of(site, how):
    running = contextlib.ExitStack()
    running.enter_context(engine.alone(site.account))

    def pause():
        site.now += 1
        site.calls.take()
        if site.now > began + 10:
            running.close()
        if how == "restarted" and site.now > began + 5:
            site.account.forget_tickets()

    began, site.pause = site.now, pause
    with running, pytest.raises(SafeUpdateError, match="has ended or was restarted"):
        site.redeliver("a")
    assert site.now - began < calls.TAKEN_TIMEOUT / 2


def test_an_engine_without_a_lock_may_well_run(site):
    with engine.alone(site.account):
        """There was one before, with a lock."""
    site.pub(["a"], "cmd.run", ["line"], jid=JID)
    assert site.redeliver("a")["no_answer"] == ["a"]


def test_a_job_that_was_ended_is_not_published_again_to_those_for_whom_it_was_ended(site):
    """Whether they hear of that when it is published, or have missed both."""
    other = JID.replace("0000", "0001")
    site.add("c")
    site.there = set()
    site.pub(["a", "b", "c"], "cmd.run", ["line"], jid=JID)
    site.there = {"a"}
    site.pub(["a", "b"], "saltutil.kill_job", [JID], jid=other)
    site.there = {"a", "b", "c"}
    site.start()
    for _ in range(4):
        site.pause()
    assert site.runs == [("a", other), ("c", JID), ("b", other)]


@pytest.mark.parametrize("fun", ["saltutil.kill_job", "saltutil.kill_all_jobs"])
def test_the_end_of_a_job_may_come_before_the_job(site, fun):
    """A syndic forwards what it gets at once in another order."""
    site.pub(["a"], fun, [JID], jid=OTHER)
    site.pub(["a", "b"], "cmd.run", ["line"], jid=JID)
    ticket = site.account.ticket(max(site.account.numbers()), ["a", "b"])
    assert site.account.redeem(ticket).minions == ["b"]
    site.there = {"a", "b"}
    site.redeliver("a", "b")
    assert [run for run in site.runs if run[1] == JID] == [("b", JID)]


def test_one_jid_for_two_jobs_is_for_each_what_it_was(site):
    """Somebody may choose it. A minion runs the first job under it that is meant for it."""
    site.pub(["a"], "cmd.run", ["first"], jid=JID)
    site.pub(["a", "b"], "cmd.run", ["second"], jid=JID)
    site.there = {"a", "b"}
    site.redeliver("a", "b")
    assert [site.hosts[name].ran for name in ("a", "b")] == [{JID: ["first"]}, {JID: ["second"]}]
    assert sorted(site.runs) == [("a", JID), ("b", JID)]


def test_a_master_that_stands_down_says_why(site):
    site.account.set_fact(accounts.STOOD_DOWN, "This Salt is not known: publish is not there.")
    with pytest.raises(SafeUpdateError, match="publish is not there"):
        site.redeliver("a")


@pytest.mark.parametrize(
    ("reason", "window", "said"),
    [
        ("This Salt is not known: publish is not there.", 600, "publish is not there"),
        ("", "soon", "'window' must be a number"),
        ("", 0, "'window' must be a number"),
    ],
)
def test_an_engine_that_stands_down_says_it_once_and_stays(
    tmp_path, monkeypatch, caplog, reason, window, said
):
    monkeypatch.setattr(hooks, "_stood_down", [reason] if reason else [])
    opts, waited = {"cachedir": str(tmp_path)}, []
    engine.run(opts, window, wait_for_ever=lambda: waited.append(True))
    assert (len(caplog.records), waited) == (1, [True])
    assert said in caplog.text
    with pytest.raises(SafeUpdateError, match=said):
        redelivery.redeliver(Calls(Account(path_of(opts))), ["a"], 5.0)


def test_an_engine_whose_account_cannot_be_used_waits_for_it(tmp_path, caplog):
    """It ended, and Salt started it again and again, with a traceback each time."""
    account, place = Account(str(tmp_path / "safeupdate" / "account.db")), tmp_path / "safeupdate"
    place.write_text("in its place")

    def mend(_):
        place.unlink(missing_ok=True)

    owner = engine.owner_of(account, "here", pause=mend)
    assert caplog.text.count("rollouts wait") == 1
    assert (account.fact("engine"), account.fact("owner")) == ("started", owner)


def test_of_an_engine_that_is_configured_twice_one_acts(site):
    def second(hear, say):
        engine.log.addHandler(handler := logging.Handler())
        handler.emit = lambda record: say(record.getMessage())
        hear()
        with engine.alone(site.account, 0.0):
            say("acts")

    with forked(second) as child:
        with engine.alone(site.account):
            child.say()
            assert "another engine 'safeupdate_redeliver' of this master runs" in child.hear()
        assert child.hear() == "acts", "it takes the place of the first one"
        assert child.wait() == 0


def test_without_locks_an_engine_acts_and_says_so(tmp_path, caplog):
    (tmp_path / "engine.lock").mkdir()
    with engine.alone(Account(str(tmp_path / "account.db"))):
        assert "this engine may not be the only one" in caplog.text


def test_a_ticket_that_was_used_publishes_nothing(site):
    site.pub(["a"], "cmd.run", ["line"], jid=JID)
    (one,) = site.account.since(0)
    ticket = site.account.ticket(one.number, ["a"])
    site.pub(["a"], QUERY, [[]], **{TICKET: ticket})
    with pytest.raises(Exception, match="ticket is not valid"):
        site.pub(["a"], QUERY, [[]], **{TICKET: ticket})
