"""What the hooks in a master let into the account, and when a master publishes nothing again."""

import asyncio
import base64
import contextlib
import sqlite3

import pytest
import salt.config
import salt.master
import salt.payload
from salt.exceptions import PublishError

from saltext_safeupdate import patches
from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.jobs import functions
from saltext_safeupdate.core.jobs.functions import Kind
from saltext_safeupdate.core.jobs.meant import about
from saltext_safeupdate.engines import safeupdate_redeliver as engine
from saltext_safeupdate.master import aiming, hooks, replies
from saltext_safeupdate.master.account import (
    ALL,
    BUSY_TIMEOUT,
    HURRY_TIMEOUT,
    QUESTION,
    TICKET,
    Account,
)
from saltext_safeupdate.master.engine_options import START_TAGS, start_tags, unfit
from saltext_safeupdate.master.hooks import Keeper
from saltext_safeupdate.master.notes import Notes

JID = "20260101120000000000"
SECRET = "correct-horse-battery-staple"


class Master:
    """The hooks around functions that do what Salt's do."""

    def __init__(self, path, **options):
        self.account = Account(str(path / "account.db"))
        self.account.begin_anew()
        self.notes, self.answers = Notes(), Notes()
        self.now, self.announced, self.opts = 0.0, [], {}
        given = (self.account, self.notes, self.answers)
        keeper = Keeper(*given, clock=lambda: self.now, **options)
        table = {patch.name: patch for patch in keeper.table()}
        self._prep_pub = table["_prep_pub"].replace(self._salts_prep_pub)
        # What Salt makes of a call, if not what it was given.
        self.outcome = None
        self._send_pub = table["_send_pub"].replace(self._salts_send_pub)
        self.sent = []
        self._run_func = table["run_func"].replace(self._salts_run_func)

    def _salts_run_func(self, master, func, load):
        return self.outcome or (func, load)

    def _salts_prep_pub(self, master, minions, jid, clear_load, extra, missing):
        clear_load["jid"] = jid
        self.announced.append(jid)
        return {key: value for key, value in clear_load.items() if key not in ("key", "kwargs")}

    def _salts_send_pub(self, master, load):
        if self.outcome:
            return self.outcome
        self.sent.append(dict(load))
        load["salt"] = "adds to it"
        return None

    def publish(self, minions=("a", "b"), jid=JID, extra=None, **load):
        load = {"fun": "cmd.run", "arg": ["x"], "tgt": "*", "tgt_type": "glob", **load}
        load = self._prep_pub(self, list(minions), jid, load, extra or {}, [])
        self._send_pub(self, load)
        return load

    def call(self, func, load):
        return self._run_func(self, func, load)


@pytest.fixture
def make(tmp_path):
    made = []

    def master(**options):
        made.append(Master(tmp_path, **options))
        return made[-1]

    yield master
    for each in made:
        each.notes.close()
        each.answers.close()


@pytest.fixture
def master(make):
    return make()


def test_what_the_master_publishes_is_in_the_account(master):
    assert master.publish(["b", "a"], user="alice")["user"] == "alice"
    (one,) = master.account.since(0)
    assert (one.jid, one.minions, one.again) == (JID, {"a", "b"}, True)


@pytest.mark.parametrize("fun", functions.named(Kind.MOMENTARY))
def test_what_never_goes_out_again_is_only_there_if_it_ends_jobs_or_asks_after_one(master, fun):
    master.publish(fun=fun)
    found = list(master.account.since(0)) if master.account.exists() else []
    assert not any(one.again for one in found)
    assert [one.ends for one in found if one.ends] == ([ALL] if fun.endswith("_all_jobs") else [])
    assert [one.asks for one in found if one.asks] == (["x"] if fun == functions.FIND_JOB else [])


def test_what_is_for_nobody_or_published_by_a_minion_is_not(master):
    master.publish([])
    master.publish(extra={"id": "mallory"})
    assert not master.account.exists()


@pytest.mark.parametrize(
    "jid", ["mine", "#1", "9" * 21, "\u0662" * 20, f"{JID}_12345678", f"{JID}\n"]
)
def test_a_job_whose_id_salt_has_not_made_is_not(master, caplog, jid):
    """Its answers could be too long for a note, or be taken for one about another job."""
    master.publish(jid=jid)
    assert not master.account.exists()
    assert "because its ID is not one that Salt has made" in caplog.text
    assert "\n" not in caplog.messages[0]
    master.publish(jid=f"{JID}_1234567")
    assert master.account.exists()


def test_a_question_of_the_engine_is_not(master):
    """The engine asks again, if it still wants to know."""
    master.publish(fun="safeupdate.plan", extra={QUESTION: True})
    assert not master.account.exists()


def test_answers_to_questions_have_a_pipe_of_their_own(master):
    load = {"id": "a", "jid": JID, "fun": "safeupdate.plan", "return": {"x": 1}, "success": True}
    assert master.call("_return", load) == ("_return", load)
    assert master.notes.read(0) == []
    ((jid, minion, _, number, count, text),) = master.answers.read(0)
    assert (jid, minion, number, count) == (JID, "a", 0, 1)
    assert replies.unpack(base64.b64decode(text)) == {"x": 1}
    for strange in ({"resource_id": "b"}, {"jid": 5}, {"jid": "9" * 99}, {"fun": "test.ping"}):
        master.call("_return", load | strange)
    master.call("_syndic_return", load)
    assert master.answers.read(0) == []


def test_a_ticket_publishes_what_was_published_to_those_that_missed_it_and_were_meant(master):
    master.publish(
        *(["a", "b"],),
        **{"tgt": "os|Debian", "tgt_type": "grain", "delimiter": "|", "user": "alice"},
        **{"ret": "mysql", "metadata": {"a": 1}},
    )
    (original,) = master.sent
    (one,) = master.account.since(0)
    ticket = master.account.ticket(one.number, ["b", "gone"])
    master.publish(["b", "c"], fun=functions.QUERY, arg=[[]], extra={TICKET: ticket}, user="root")
    del original["delimiter"]
    words = ["L@b", "and", "(", "G|@os|Debian", ")"]
    assert master.sent[1] == {**original, "tgt": words, "tgt_type": "compound"}
    assert master.announced == [JID], "it is announced once, and the job cache stays as it was"
    assert len(list(master.account.since(0))) == 1


def test_what_minions_cannot_decide_is_published_once_and_told(master, caplog):
    load = master.publish(tgt="os::Debian", tgt_type="grain", delimiter="::")
    assert master.sent == [{key: load[key] for key in load if key != "salt"}]
    assert not master.account.exists()
    assert "do not get it again, because they could not tell" in caplog.text


def test_what_is_no_name_in_a_list_keeps_nobody_from_being_asked(master):
    """Before Salt 3008, anybody who may publish can put it there, and it is published."""
    master.publish(["a"], tgt=["a", ["b"], {"c": 1}, None, 5], tgt_type="list")
    (one,) = master.account.since(0)
    targets = master.account.targets([one.number])
    (asked,) = aiming.asked(targets, {one.number: JID}, {one.number: 1.0}, ["a"])
    assert asked["tgt"] == ["a"]
    ticket = master.account.ticket(one.number, ["a"])
    master.publish(["a"], fun=functions.QUERY, arg=[[]], extra={TICKET: ticket})
    assert [(load["tgt"], load["tgt_type"]) for load in master.sent[1:]] == [(["a"], "list")]


@pytest.mark.parametrize(
    ("tgt", "kind", "again"),
    [
        ("web*", "glob", (["web1"], "list")),
        ("web[0-9]", "pcre", (["web1"], "list")),
        ("web1,db1", "list", (["db1", "web1"], "list")),
        (
            "web1 or db1",
            "compound",
            (["L@db1,web1", "and", *["(", "web1", "or", "db1", ")"]], "compound"),
        ),
    ],
)
@pytest.mark.parametrize("forwards", [False, True])
def test_what_names_decide_goes_out_again_to_those_alone(make, tgt, kind, again, forwards):
    """With 'zmq_filtering' and over TCP, others do not get what the job is called with."""
    master = make(forwards=forwards)
    names = ["db1", "web1"]
    master.publish(names, tgt=tgt, tgt_type=kind)
    (one,) = master.account.since(0)
    ticket = master.account.ticket(one.number, names)
    master.publish(names, fun=functions.QUERY, arg=[[]], extra={TICKET: ticket})
    (load,) = master.sent[1:]
    assert load["tgt_type"] == ("compound" if forwards else again[1])
    assert forwards or load["tgt"] == again[0]


@pytest.mark.parametrize(("workers", "most"), [(1, 60), (5, 12), (100, 1), (0, 60)])
def test_one_minion_does_not_keep_others_from_being_heard(make, workers, most):
    """It may send as often as it likes what counts as an answer to our queries."""
    master = make(workers=workers)
    states = {f"{number:032}": "x" * 32 for number in range(50)}
    load = {"id": "mallory", "jid": JID, "fun": functions.QUERY, "success": True, "return": states}
    for _ in range(1000):
        master.call("_return", load)
    master.call("_minion_event", {"id": "a", "tag": "minion_start"})
    heard = []
    while found := master.notes.read(0):
        heard += found
    assert [note for note in heard if note[0] != "answer"] == [["start", "a"]]
    assert 0 < len(heard) - 1 <= most
    master.now += 1
    master.call("_return", load)
    assert len(master.notes.read(0)) == 1


def test_a_job_that_is_called_as_a_publication_is_in_answers_is_left_alone(master, caplog):
    """Whoever publishes may choose the ID, and would keep others from what they have missed."""
    assert master.publish(jid=about(1))["jid"] == about(1)
    assert not master.account.exists()
    assert "do not get it again" in caplog.text


def test_a_syndic_makes_no_other_target_of_what_is_published_again(make, caplog):
    """
    It joins the words of a compound target, so a space in one of them makes others of it.

    What follows would be for all of its minions, and under the name of another user.
    """
    widened = {"tgt": "role:web ) or ( *", "tgt_type": "grain", "user": "bob"}
    master = make(forwards=True)
    master.publish(["a"], **widened)
    assert not master.account.exists()
    assert "do not get it again, because they could not tell" in caplog.text
    make().publish(["a"], **widened)
    master.publish(["a", "b or *"], tgt=["a", "b or *"], tgt_type="list")
    found = [one.number for one in master.account.since(0)]
    for number, names in zip(found, (["a"], ["a", "b or *"]), strict=True):
        ticket = master.account.ticket(number, names)
        with contextlib.suppress(PublishError):
            master.publish(names, fun=functions.QUERY, arg=[[]], extra={TICKET: ticket})
    assert [load["tgt"] for load in master.sent[2:]] == [["L@a"]]


def test_what_salt_could_not_send_never_comes_later(master):
    """The worker may die, or the sending fail, after the job was announced."""
    load = {"fun": "cmd.run", "arg": ["x"], "tgt": "*", "tgt_type": "glob"}
    master._prep_pub(master, ["a"], JID, load, {}, [])
    assert not master.account.exists()

    async def later(error):
        if error:
            raise error
        assert list(master.account.since(0)) == []

    for error, count in ((OSError("no"), 0), (None, 1)):
        load = master._prep_pub(master, ["a"], JID, dict(load), {}, [])
        master.outcome = later(error)
        with contextlib.suppress(OSError):
            asyncio.run(master._send_pub(master, load))
        assert len(list(master.account.since(0))) == count


def test_without_a_ticket_of_the_engine_nothing_is_published(master):
    with pytest.raises(PublishError):
        master.publish(extra={TICKET: "made up"})
    assert master.announced == []


def test_an_account_that_cannot_be_written_stops_no_publication_and_is_told_once_a_minute(
    master, caplog
):
    master.account.path = "/proc/no/account.db"
    for _ in range(3):
        assert master.publish(arg=[SECRET])
        assert caplog.text.count("cannot be made") == 1
    master.now += 60
    assert master.publish(arg=[SECRET])
    assert caplog.text.count("cannot be made") == 2
    assert SECRET not in caplog.text


def test_who_publishes_waits_once_for_an_account_that_somebody_keeps_locked(master, monkeypatch):
    """Each worker does one after the other: all that is published would wait, and take its turn."""
    waits = []
    connect = sqlite3.connect

    def noted(path, timeout=0.0, **kwargs):
        waits.append(timeout)
        return connect(path, timeout=min(timeout, 0.01), **kwargs)

    master.publish()
    shell = connect(master.account.path, isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(sqlite3, "connect", noted)
    for _ in range(3):
        master.publish()
    assert waits == [BUSY_TIMEOUT, HURRY_TIMEOUT, HURRY_TIMEOUT]
    master.now += 60
    master.publish()
    master.publish()
    assert waits[3:] == [BUSY_TIMEOUT, HURRY_TIMEOUT], "from time to time it is tried in earnest"
    shell.execute("ROLLBACK")
    shell.close()
    master.publish()
    master.publish()
    assert waits[5:] == [HURRY_TIMEOUT, BUSY_TIMEOUT]
    assert len(list(master.account.since(0))) == 3


@pytest.mark.parametrize("lost", ["locked", "full", "no"])
@pytest.mark.parametrize(
    ("fun", "matters"),
    [
        ("saltutil.kill_job", True),
        ("saltutil.term_all_jobs", True),
        (functions.FIND_JOB, True),
        ("cmd.run", False),
    ],
)
def test_what_ends_a_job_or_asks_after_it_is_never_forgotten(
    master, monkeypatch, lost, fun, matters
):
    """If it cannot be written, nothing of before goes out again, without an engine as well."""
    master.publish(arg=["job"])
    (one,) = master.account.since(0)
    ticket = master.account.ticket(one.number, ["a", "b"])
    shell = sqlite3.connect(master.account.path, isolation_level=None)
    master.account._busy_timeout = 0.01
    if lost == "locked":
        shell.execute("BEGIN IMMEDIATE")
    elif lost == "full":
        monkeypatch.setattr(master.account, "published", full)
    master.publish(["a"], fun=fun, arg=[JID], jid=f"{int(JID) + 1}")
    shell.close()
    with contextlib.suppress(PublishError):
        master.publish(fun=functions.QUERY, arg=[[]], extra={TICKET: ticket})
    again = [load["tgt"] for load in master.sent[2:]]
    ended = lost == "no" and fun not in (functions.FIND_JOB, "cmd.run")
    expected = ["b"] if ended else ["a", "b"]
    assert again == ([expected] if lost == "no" or not matters else [])
    assert master.account.is_whole() is (lost == "no" or not matters)


def full(*_, **__):
    raise RecordError("database or disk is full")


def test_the_end_of_a_job_is_written_down_before_minions_hear_of_it(master):
    load = {"fun": "saltutil.kill_job", "arg": ["1"], "tgt": "*", "tgt_type": "glob"}
    load = master._prep_pub(master, ["a"], JID, load, {}, [])

    async def sending():
        return [(one.ends, one.again) for one in master.account.since(0)]

    master.outcome = sending()
    assert asyncio.run(master._send_pub(master, load)) == [("1", False)]


def test_a_minion_may_end_jobs(master):
    master.publish(fun="saltutil.kill_job", arg=["1"], extra={"id": "web1"})
    (one,) = master.account.since(0)
    assert (one.ends, one.again) == ("1", False)


@pytest.fixture
def _untold(monkeypatch):
    monkeypatch.setattr(patches, "_troubles", {})


def fails(*_, **__):
    raise RuntimeError("ours")


@pytest.mark.usefixtures("_untold")
def test_an_error_of_ours_stops_no_publication_and_no_return(master, monkeypatch):
    monkeypatch.setattr(functions, "is_redelivered", fails)
    assert master.publish()["jid"] == JID
    assert master.announced == [JID], "once"
    load = {"id": "a", "jid": JID}
    for broken in (hooks, "heard"), (replies, "of"), (Notes, "write"):
        monkeypatch.setattr(*broken, fails)
        assert master.call("_return", load) == ("_return", load)

        async def later():
            return load, SEND

        master.outcome = later()
        assert _awaited(master.call("_return", load)) == (load, SEND)
        master.outcome = None
    assert set(patches.troubles().values()) == {"RuntimeError: ours"}


def _awaited(value):
    async def wait():
        return await value

    return asyncio.run(wait())


def test_an_error_of_ours_lets_nothing_out_in_the_place_of_what_a_ticket_is_for(
    master, monkeypatch
):
    monkeypatch.setattr(Account, "redeem", fails)
    with pytest.raises(PublishError, match="nothing was published: ours"):
        master.publish(extra={TICKET: "one"})
    assert master.announced == []


def test_more_than_now_is_passed_on(master):
    """Another patch release."""
    table = {patch.name: patch for patch in Keeper(master.account, None, None).table()}
    seen = []

    def newer(*args, more=None):
        seen.append((len(args), more))
        return {}

    for name, many in (("_prep_pub", 6), ("run_func", 3), ("_handle_payload", 2)):
        called = table[name].replace(newer)
        called(*({} for _ in range(many)), more=5)
        called(*({} for _ in range(many)), 6)
        assert seen == [(many, 5), (many + 1, None)]
        seen.clear()


def test_what_a_minion_sends_is_noted_and_goes_on_as_it_is(master):
    load = {"id": "a", "jid": JID, "resource": {}}
    assert master.call("_return", load) == ("_return", load)
    assert master.call("_minion_event", {"id": "a", "tag": "salt/minion/b/start"})
    for func, odd in (("_return", 5), (None, None), ("_syndic_return", load), ("_mine", {})):
        assert master.call(func, odd) == (func, odd)
    assert master.notes.read(0) == [["start", "a"]]


SEND = {"fun": "send"}
ANSWER = {"id": "a", "jid": JID, "fun": "safeupdate.plan", "return": {"x": 1}, "success": True}


@pytest.mark.parametrize("refusal", [False, ""])
def test_a_return_that_salt_refuses_is_none(master, refusal):
    """It lacks a signature, or has a wrong one, or Salt has failed over it."""
    master.outcome = refusal, SEND
    assert master.call("_return", ANSWER) == (refusal, SEND)
    assert master.answers.read(0) == []
    master.outcome = None, SEND
    assert master.call("_return", ANSWER) == (None, SEND)
    assert len(master.answers.read(0)) == 1


def test_a_return_that_salt_takes_in_its_own_time_counts_then(master):
    """As a master of 3008 with 'master_async_mworker' does."""

    async def later(value):
        assert master.answers.read(0) == []
        return value, SEND

    for value, count in ((False, 0), ("", 0), (None, 1)):
        master.outcome = later(value)
        assert asyncio.run(master.call("_return", ANSWER)) == (value, SEND)
        assert len(master.answers.read(0)) == count


def test_this_salt_is_known(master):
    keeper = Keeper(master.account, master.notes, master.answers)
    assert patches.differences(keeper.table()) == []


@pytest.mark.parametrize(
    "place", [patch[:2] for patch in Keeper(None, None, None).table()], ids=str
)
def test_a_salt_without_one_of_them_is_left_as_it_is(master, place, monkeypatch):
    owner, name = place
    keeper = Keeper(master.account, master.notes, master.answers)
    monkeypatch.delattr(owner, name)
    before = {**vars(salt.master.ClearFuncs)}, {**vars(salt.master.AESFuncs)}
    reason = hooks.put_in(keeper)
    assert f"{name} is not there" in reason
    assert before == ({**vars(salt.master.ClearFuncs)}, {**vars(salt.master.AESFuncs)})


def test_as_salt_is_set_up_the_master_is_fit():
    assert unfit(salt.config.DEFAULT_MASTER_OPTS) == ""


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"minimum_auth_version": 2}, "minimum_auth_version"),
        ({"minimum_auth_version": "3"}, "minimum_auth_version"),
        ({"open_mode": True}, "open_mode"),
        ({"cluster_id": "one"}, "cluster"),
        ({"enable_ssh_minions": True}, "salt-ssh"),
    ],
)
def test_a_master_in_which_it_is_not_safe(changed, word):
    assert word in unfit({**salt.config.DEFAULT_MASTER_OPTS, **changed})


def test_a_salt_that_does_not_know_the_option_is_not_fit():
    assert "update Salt" in unfit({})


def test_a_master_without_the_engine_gets_no_hooks(monkeypatch, tmp_path):
    """Salt loads the files of all engines if one is configured that does not exist."""
    put_in = []
    monkeypatch.setattr(hooks, "_installed", [])
    monkeypatch.setattr(hooks, "_stood_down", [])
    monkeypatch.setattr(hooks, "put_in", lambda keeper: put_in.append(keeper) or "")
    opts = {**salt.config.DEFAULT_MASTER_OPTS, "cachedir": str(tmp_path), "__role": "master"}
    monkeypatch.setattr(engine, "__opts__", opts, raising=False)
    for engines in ([], None, ["reactor"], {"reactor": {}}, [{"a": {"engine_module": "b"}}]):
        opts["engines"] = engines
        assert engine.__virtual__()[0] is False
    assert put_in == []
    opts["engines"] = [{"a": {"engine_module": "safeupdate_redeliver"}}]
    assert engine.__virtual__() == "safeupdate_redeliver"
    # In the process of the engine, Salt has taken the name of the module out of the options.
    opts["engines"] = [{"a": {}}]
    assert engine.__virtual__() == "safeupdate_redeliver"
    assert len(put_in) == 1
    hooks.notes().close()
    hooks.answers().close()


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        (["safeupdate_redeliver"], list(START_TAGS)),
        ([{"safeupdate_redeliver": {}}], list(START_TAGS)),
        ([{"safeupdate_redeliver": None}], list(START_TAGS)),
        ([{"other": {"start_tags": ["x"]}}], list(START_TAGS)),
        ([{"safeupdate_redeliver": {"start_tags": ["my/start", 5]}}], ["my/start"]),
        ([{"one": {"engine_module": "safeupdate_redeliver", "start_tags": "x"}}], ["x"]),
        ({"test": {}, "safeupdate_redeliver": {"start_tags": ["x"]}}, ["x"]),
        (None, list(START_TAGS)),
    ],
)
def test_the_tags_of_a_start_are_those_of_the_engine(engines, expected):
    assert start_tags({"engines": engines}) == expected
