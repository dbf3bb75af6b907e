"""A runner that asks, the engine, and the hooks of a master; only the processes are missing."""

import os
import types

import pytest
from salt.exceptions import PublishError

from saltext_safeupdate.core.errors import InputError, SafeUpdateError
from saltext_safeupdate.master import account as accounts
from saltext_safeupdate.master import calls, engine, questions
from saltext_safeupdate.master.account import Account, path_of
from saltext_safeupdate.master.calls import Calls
from saltext_safeupdate.master.engine import Desk
from saltext_safeupdate.master.hooks import Keeper
from saltext_safeupdate.master.notes import Notes
from saltext_safeupdate.master.questions import Questions
from saltext_safeupdate.master.redelivery import Redelivery
from saltext_safeupdate.master.replies import Failed


class Site:
    """A master in one process; *says* is what minions answer, by name."""

    def __init__(self, path):
        self.opts = {"cachedir": str(path)}
        self.now, self.says, self.published = 100.0, {}, []
        # What is not published, by minion, and why.
        self.refused = {}
        self.account = Account(path_of(self.opts))
        self.notes, self.answers = Notes(), Notes()
        table = {p.name: p.replace for p in Keeper(self.account, self.notes, self.answers).table()}
        self.prep_pub = table["_prep_pub"](lambda master, who, jid, load, *_: {**load, "jid": jid})
        self.run_func = table["run_func"](lambda *_: None)
        self.account.set_fact(accounts.ENGINE, "started")
        self.desk = self.start()

    def start(self):
        work = Redelivery({}, self.account)
        work._client = self
        jids = iter(range(1000))
        asking = Questions(work.question, lambda: f"jid{next(jids)}", clock=lambda: self.now)
        mailbox = Calls(Account(self.account.path))
        return Desk(asking, mailbox, self.answers, clock=lambda: self.now)

    def pub(self, tgt, fun, arg, tgt_type, jid, **extra):
        for error in (self.refused[name] for name in tgt if name in self.refused):
            raise error
        self.published.append((tgt, fun, arg, extra))
        self.prep_pub(self, tgt, jid, {"fun": fun, "arg": arg}, extra, [])
        for minion in self.says:
            value = self.says[minion]
            good = not isinstance(value, Failed)
            told = {"id": minion, "jid": jid, "fun": fun, "return": value, "success": good}
            self.run_func(self, "_return", told)

    def pause(self, seconds):
        self.now += max(seconds, 0.2)
        self.desk.tick()

    def ask(self, minions, fun="safeupdate.report", arg=(), timeout=5.0):
        return questions.ask(
            self.opts, minions, fun, arg, timeout, clock=lambda: self.now, pause=self.pause
        )


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    made.notes.close()
    made.answers.close()


def test_each_gives_its_own_answer_and_who_is_silent_is_missing(site):
    site.says = {"a": {"phase": "idle"}, "b": Failed("not available"), "mallory": "I am c"}
    found = site.ask(["c", "b", "a"])
    assert found == {"a": {"phase": "idle"}, "b": "not available"}
    assert isinstance(found["b"], Failed)
    assert [sent[:3] for sent in site.published] == [(["a", "b", "c"], "safeupdate.report", [])]
    assert list(site.account.since(0)) == [], "it is not published again"
    with site.account.connection() as db:
        assert [db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in TABLES] == [0, 0]


TABLES = ("calls", "answers")


def test_what_the_master_does_not_publish_is_no_silence_of_minions(site):
    """With 'publisher_acl_blacklist' it may keep its own user from it."""
    site.says = {f"m{number:03}": number for number in range(201)}
    site.refused = dict.fromkeys(site.says, PublishError("Authorization error occurred."))
    with pytest.raises(SafeUpdateError, match=r"Authorization error .*publisher_acl_blacklist"):
        site.ask(site.says)
    assert site.published == []
    # If a part of them cannot be asked, the answers of the others count.
    del site.refused["m200"]
    assert site.ask(site.says) == {"m200": 200}


def test_hundreds_are_asked_in_parts_and_arguments_have_names(site):
    site.says = {f"m{number}": number for number in range(450)}
    assert site.ask(site.says, "safeupdate.plan", {"version": "3008.3"}) == site.says
    assert len(site.published) == 3
    assert site.published[0][2] == [{"__kwarg__": True, "version": "3008.3"}]


def test_what_only_looks_takes_no_place_in_the_job_cache(site):
    for fun in ("report", "request", "withdraw", "prefetch"):
        site.ask(["a"], f"safeupdate.{fun}")
    told = [(fun, extra.get("nocache", False)) for _, fun, _, extra in site.published]
    assert told == [
        ("safeupdate.report", True),
        # These change the minion: people look there for what was done.
        ("safeupdate.request", False),
        ("safeupdate.withdraw", False),
        ("safeupdate.prefetch", False),
    ]


def test_the_query_for_missed_jobs_takes_no_place_in_the_job_cache(site):
    work, sent = Redelivery({}, site.account), []
    work._client = types.SimpleNamespace(pub=lambda *_, **given: sent.append(given))
    work.ask(["a"], ["1"], [])
    assert [given.get("nocache") for given in sent] == [True]


def test_what_minions_are_not_asked(site):
    assert site.ask([]) == {}
    with pytest.raises(InputError, match=r"not asked cmd\.run"):
        site.ask(["a"], "cmd.run")
    assert site.published == []


def test_an_engine_that_is_not_there_is_a_clear_error(site, tmp_path):
    site.pause = lambda seconds: setattr(site, "now", site.now + seconds)
    with pytest.raises(SafeUpdateError, match="does not answer, and nothing was started"):
        site.ask(["a"])
    site.account.set_fact(accounts.STOOD_DOWN, "This Salt is not known.")
    with pytest.raises(SafeUpdateError, match="This Salt is not known"):
        site.ask(["a"])
    with pytest.raises(
        SafeUpdateError, match=r"has not run on this master.*Run 'salt-run safeupdate\.setup'"
    ):
        questions.ask({"cachedir": str(tmp_path / "other")}, ["a"], "safeupdate.report")
    assert site.published == []


def test_an_engine_that_has_died_is_told_of_soon(site):
    """Its lock tells: nobody has to wait for a minute."""
    site.pause = lambda seconds: setattr(site, "now", site.now + seconds)
    with engine.alone(site.account), pytest.raises(SafeUpdateError, match="does not answer"):
        site.ask(["a"])
    began = site.now
    with pytest.raises(SafeUpdateError, match="does not run, and nothing was started"):
        site.ask(["a"])
    assert site.now - began < 2 * calls.GONE_TIMEOUT


def test_an_engine_that_is_started_anew_is_told_of(site):
    def restart(seconds):
        site.now += seconds
        site.account.forget_tickets()

    site.pause = restart
    with pytest.raises(SafeUpdateError, match="restarted meanwhile"):
        site.ask(["a"])


def test_what_was_asked_in_an_account_that_is_gone_is_not_answered_in_the_next(site):
    """Its numbers begin anew. An engine keeps the file open, so the next one is another."""
    site.account.anchor_anew()
    given = {"minions": ["a"], "fun": "safeupdate.report", "arg": [], "timeout": 5.0}
    number = calls.Calls(site.account).put(questions.ASK, given)
    site.pause(0.2)
    for name in os.listdir(os.path.dirname(site.account.path)):
        if name.startswith("account.db"):
            os.unlink(os.path.join(os.path.dirname(site.account.path), name))
    other = calls.Calls(Account(site.account.path))
    assert other.put(questions.ASK, {**given, "minions": ["b"], "timeout": 50.0}) == number
    told = {"id": "a", "jid": "jid0", "fun": given["fun"], "return": "late", "success": True}
    site.run_func(site, "_return", told)
    for _ in range(40):
        site.pause(0.2)
    assert (other.outcome(number), other.answers(number)) == (("taken", {}), [])


def test_a_call_that_this_engine_does_not_know_is_an_error(site):
    with pytest.raises(SafeUpdateError, match="does not know 'dance'"):
        calls.call(Calls(site.account), "dance", {}, 5.0, clock=lambda: site.now, pause=site.pause)


def test_answers_that_cannot_be_written_are_written_later(site, caplog):
    site.says = {"a": 1}
    path, site.desk._calls.account.path = site.account.path, "/proc/no/account.db"
    ticks = []

    def pause(seconds):
        ticks.append(seconds)
        if len(ticks) == 20:
            site.desk._calls.account.path = path
        Site.pause(site, seconds)

    site.pause = pause
    assert site.ask(["a"]) == {"a": 1}
    assert "cannot be made" in caplog.text
