import re

import pytest

from saltext_safeupdate.core.errors import CommandError, InputError, SafeUpdateError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.transactional import call as calls
from saltext_safeupdate.core.transactional.cli import Options
from saltext_safeupdate.core.transactional.closing import Refusal
from saltext_safeupdate.core.transactional.handover import Answer, Directory
from saltext_safeupdate.core.transactional.invocation import Host
from saltext_safeupdate.core.transactional.outcome import Call, Limits, Outcome
from saltext_safeupdate.core.transactional.roots import Roots, Subvolume
from tests.support.fakes import FakeRunner

ONE, TWO = Subvolume(1, 261), Subvolume(2, 262)
STATES = {"test_|-a_|-a_|-nop": {"result": True, "changes": {}, "__run_num__": 4}}


class FakeTool:
    """Hands the request to *act*, which answers like the inner half."""

    def __init__(self, tmp_path, act, *, after=ONE, before=ONE, code=0, version=(6, 1, 1)):
        (tmp_path / "mountinfo").write_text("")
        self.host = Host(base=tmp_path / "base", mountinfo=tmp_path / "mountinfo")
        self.act, self.after, self.before, self.code, self.version = (
            act,
            after,
            before,
            code,
            version,
        )
        self.run = FakeRunner(
            {
                ("systemctl", "daemon-reload"): (0, "", ""),
                ("systemctl", "restart", "web"): (0, "", ""),
                ("systemctl", "restart", "bad"): (1, "", "no"),
            }
        )
        self.lost = {}
        self.words, self.etc_changed, self.short, self.refusal = None, False, None, None

    def invoke(self, words, options, limits, *, directory, failed):
        self.words = words
        assert Directory(directory.path).request().function == "x.y"
        self.act(directory)
        result = Result(argv=("transactional-update",), returncode=self.code, stdout="", stderr="")
        return Outcome(
            call=Call(
                argv=("transactional-update",),
                version=self.version,
                options=options,
                limits=limits,
                opens=True,
            ),
            result=result,
            before=Roots(running=ONE, default=self.before),
            after=Roots(running=ONE, default=self.after),
            failure=self.short or failed(),
            cut_short=self.short is not None and self.refusal is None,
            refusal=self.refusal,
            lost_edits=self.lost,
            etc_changed=self.etc_changed,
        )


def ask(tool, **kwargs):
    return calls.call(
        tool,
        "x.y",
        [1],
        kwargs,
        salt_call=["salt-call"],
        options=Options(),
        limits=Limits(),
        ask=lambda wish: {"result": False, "comment": "refused", "changes": {}},
    )


def answering(value=None, retcode=0, wishes="", **more):
    def act(directory):
        directory.begin()
        directory.put_answer(Answer(value=value, retcode=retcode, **more))
        directory.wishes.write_text(wishes)
        directory.wishes.chmod(0o600)

    return act


def test_the_value_comes_back(tmp_path):
    tool = FakeTool(tmp_path, answering(value=[1, "1", None]))
    reply = ask(tool)
    assert (reply.value, reply.retcode) == ([1, "1", None], 0)
    assert tool.words[6:-1] == ["salt-call", "--", "transactional_update.perform"]
    assert tool.words[5].endswith("/status")
    assert list((tmp_path / "base").iterdir()) == []
    assert reply.shown(False) == reply.value
    shown = reply.shown(True)
    assert (shown["return"], shown["retcode"]) == (reply.value, 0)
    assert shown["transaction"]["new_snapshot"] is None


def test_state_results_stay_as_they_are_where_there_is_nothing_to_say(tmp_path):
    assert ask(FakeTool(tmp_path, answering(value=STATES), after=TWO)).value == STATES


def test_failed_states_come_back_with_a_word_about_it(tmp_path):
    reply = ask(FakeTool(tmp_path, answering(value=STATES, retcode=2), code=2))
    (tag,) = set(reply.value) - set(STATES)
    assert reply.retcode == 2
    assert reply.value[tag]["result"] is False
    assert reply.value[tag]["__run_num__"] == 5
    assert "nothing of it is in effect" in reply.value[tag]["comment"]


def test_states_that_install_what_may_not_stay_fail(tmp_path):
    bad = {"pkg_|-a_|-a_|-latest": {"result": True, "changes": {"salt": {"new": "9"}}}}
    tool = FakeTool(tmp_path, answering(value={**STATES, **bad}))
    tool.refusal = Refusal(reason="It was rolled back here.", packages=["salt"])
    tool.short = "It was rolled back here"
    value = ask(tool).value
    assert {tag: chunk["result"] for tag, chunk in value.items()} == {
        **dict.fromkeys(STATES, True),
        **dict.fromkeys(bad, False),
        "transactional_update_|-transaction_|-transaction_|-report": False,
    }
    assert value["pkg_|-a_|-a_|-latest"]["comment"] == tool.refusal.reason


LOST = "Live /etc/x was edited meanwhile, and was replaced."


@pytest.mark.parametrize(
    ("value", "shown"),
    [("printed\n", f"printed\n{LOST}"), ("", LOST), ({"a": 1}, None), (True, None)],
)
def test_lost_edits_are_named_whatever_a_function_returns(tmp_path, value, shown):
    tool = FakeTool(tmp_path, answering(value=value))
    tool.lost = {"/etc/x": "was edited meanwhile, and was replaced"}
    found = ask(tool).shown(False)
    if shown is not None:
        assert found == shown
    else:
        assert found["return"] == value
        assert found["transaction"]["lost_etc_edits"] == tool.lost


def test_lost_edits_are_named_by_a_state(tmp_path):
    tool = FakeTool(tmp_path, answering(value=STATES))
    tool.lost = {"/etc/x": "was edited meanwhile, and was replaced"}
    (chunk,) = [chunk for tag, chunk in ask(tool).shown(False).items() if tag not in STATES]
    assert LOST in chunk["comment"]


def test_states_about_what_a_transaction_hides_are_named(tmp_path):
    tool = FakeTool(tmp_path, answering(value=STATES, unseen=["/home/x"]))
    reply = ask(tool)
    (chunk,) = [chunk for tag, chunk in reply.value.items() if tag not in STATES]
    assert "does not see what the live system has there: /home/x" in chunk["comment"]
    assert reply.report()["unseen_paths"] == ["/home/x"]


def test_a_leaked_etc_is_said(tmp_path):
    tool = FakeTool(tmp_path, answering(value=STATES, retcode=2), version=(5, 1))
    tool.etc_changed = True
    (chunk,) = [chunk for tag, chunk in ask(tool).value.items() if tag not in STATES]
    assert "copied what had been changed in /etc" in chunk["comment"]


@pytest.mark.parametrize(
    "act",
    [
        answering(value="", retcode=-15),
        answering(value="", retcode=0),
        answering(value=None, retcode=1, error="the shell was terminated"),
    ],
)
def test_who_answers_when_told_to_stop_does_not_hide_why(tmp_path, act):
    tool = FakeTool(tmp_path, act, code=1)
    tool.short = "did not end within 8 s"
    with pytest.raises(CommandError, match=r"x\.y: did not end within 8 s"):
        ask(tool)


def test_states_that_were_told_to_stop_come_back_with_the_reason(tmp_path):
    tool = FakeTool(tmp_path, answering(value=STATES, retcode=0), code=1)
    tool.short = "did not end within 8 s"
    reply = ask(tool)
    (chunk,) = [chunk for tag, chunk in reply.value.items() if tag not in STATES]
    assert "did not end within 8 s" in chunk["comment"]
    assert (chunk["result"], reply.retcode) == (False, 1)


def test_a_failed_command_whose_snapshot_boots_all_the_same_is_an_error(tmp_path):
    tool = FakeTool(tmp_path, answering(value="", retcode=3), after=TWO)
    with pytest.raises(CommandError, match="exit status is 3"):
        ask(tool)
    tool = FakeTool(tmp_path, answering(value=STATES, retcode=2), after=TWO)
    (chunk,) = [chunk for tag, chunk in ask(tool).value.items() if tag not in STATES]
    assert "in effect after the next boot unless you go back" in chunk["comment"]


def test_all_remarks(tmp_path):
    wishes = "\n".join(
        '{"action": "%s"%s}' % item  # noqa: UP031
        for item in (("restart", ', "units": ["web", "salt-minion"]'), ("reboot", ""), ("halt", ""))
    )
    tool = FakeTool(tmp_path, answering(value=STATES, wishes=wishes, vanished=["/home/x"]))
    reply = ask(tool)
    (chunk,) = [chunk for tag, chunk in reply.value.items() if tag not in STATES]
    for words in (
        "Done after the transaction: restart web.",
        "The minion restarts when its jobs have ended, as asked for: restart salt-minion.",
        "Asked for inside and not done: halt.",
        "The reboot that was asked for comes after the transaction.",
        "/home/x",
    ):
        assert words in chunk["comment"]
    assert (chunk["result"], reply.retcode) == (True, 0)
    assert reply.reboot_due(activate=False)
    assert tool.run.calls == [("systemctl", "daemon-reload"), ("systemctl", "restart", "web")]


def test_the_minions_answer_is_the_result_of_the_state_that_asked(tmp_path):
    wishes = '{"action": "safeupdate.update", "state": "test_|-a_|-a_|-nop"}'
    reply = ask(FakeTool(tmp_path, answering(value=STATES, wishes=wishes)))
    (chunk,) = reply.value.values()
    assert (chunk["result"], chunk["comment"], reply.retcode) == (False, "refused", 2)
    assert chunk["__run_num__"] == 4


def test_a_function_has_no_success_if_what_it_asked_for_failed(tmp_path):
    wishes = '{"action": "restart", "units": ["bad"]}'
    reply = ask(FakeTool(tmp_path, answering(value=True, wishes=wishes)))
    assert reply.retcode == 1
    with pytest.raises(SafeUpdateError, match="restart bad after the transaction failed: no"):
        reply.shown(False)
    assert reply.shown(True)["transaction"]["services"]["failed"] == {"restart bad": "no"}


@pytest.mark.parametrize(
    ("before", "after", "activate", "retcode", "due"),
    [
        (ONE, TWO, True, 0, True),
        (ONE, TWO, False, 0, False),
        (ONE, ONE, True, 0, False),
        (TWO, TWO, True, 1, False),
    ],
)
def test_reboot_due(tmp_path, before, after, activate, retcode, due):
    act = answering(value=1, retcode=retcode)
    reply = ask(FakeTool(tmp_path, act, before=before, after=after, code=retcode))
    assert reply.reboot_due(activate) is due


def test_a_reboot_that_fails_loses_no_result(tmp_path):
    """What has run takes effect with the next boot, so its results are told."""
    err = SafeUpdateError("rebootmgr is off")
    reply = ask(FakeTool(tmp_path, answering(value=STATES)))
    told = calls.not_rebooted(reply, "state.sls", err, report=False)
    assert (told.retcode, {tag: told.value[tag] for tag in STATES}) == (2, STATES)
    (chunk,) = [chunk for tag, chunk in told.shown(False).items() if tag not in STATES]
    assert chunk["result"] is False
    assert "Not done, the reboot: rebootmgr is off." in chunk["comment"]

    reply = ask(FakeTool(tmp_path, answering(value=[1, "one"])))
    told = calls.not_rebooted(reply, "x.y", err, report=True)
    assert (told.retcode, told.shown(True)["return"]) == (2, [1, "one"])
    said = r"x\.y is done, and waits for a reboot.*rebootmgr is off.*\[1, 'one'\]"
    with pytest.raises(SafeUpdateError, match=said):
        calls.not_rebooted(reply, "x.y", err, report=False)


def test_an_error_inside_is_an_error(tmp_path):
    act = answering(retcode=1, error="why", error_type="ValueError")
    with pytest.raises(SafeUpdateError, match=r"x\.y in the transaction: why \(nothing of it"):
        ask(FakeTool(tmp_path, act, code=1))
    assert list((tmp_path / "base").iterdir()) == []


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda directory: directory.begin(), "ended without a result"),
        (lambda _: None, "installed"),
    ],
)
def test_no_answer_is_an_error(tmp_path, act, words):
    with pytest.raises(CommandError, match=re.escape(words)):
        ask(FakeTool(tmp_path, act, code=9))


@pytest.mark.parametrize("function", ["ping", "a.b.c", "", None, 5])
def test_a_wrong_function_name_is_refused(tmp_path, function):
    with pytest.raises(InputError, match=r"MODULE\.FUNCTION"):
        calls.call(
            FakeTool(tmp_path, None),
            function,
            [],
            {},
            salt_call=[],
            options=Options(),
            limits=Limits(),
            ask=None,
        )


def test_split_reserved():
    given = {
        "timeout": 1,
        "transaction_timeout": 2,
        "transaction_report": True,
        "transaction_other": 3,
        "__pub_jid": "7",
    }
    assert calls.split_reserved(given) == (
        {"timeout": 1, "transaction_other": 3},
        {"timeout": 2, "report": True},
    )


def test_settings():
    assert calls.settings({}) == {}
    opts = {"transactional_update": {"timeout": 5, "handover_dir": "/x"}}
    assert calls.limits(opts, None, None) == Limits(timeout=5)
    assert calls.limits(opts, 7, 0) == Limits(timeout=7, lock_timeout=0)
    assert str(calls.host(opts).base) == "/x"
    assert calls.host({}) == Host()


@pytest.mark.parametrize(
    "given", [5, {"typo": 1}, {"timeout": "x"}, {"handover_dir": "x"}, {"salt_call": "salt-call"}]
)
def test_wrong_settings(given):
    opts = {"transactional_update": given}
    with pytest.raises(InputError):
        (calls.host(opts), calls.limits(opts, None, None), calls.salt_call_words(opts))


def test_salt_call_words(tmp_path):
    (tmp_path / "bin").mkdir()
    python = str(tmp_path / "bin/python")
    fixed = ["--out", "quiet", "--log-level", "quiet", "--no-return-event", "--retcode-passthrough"]

    def words(opts=None, which=lambda _: None):
        found = calls.salt_call_words(opts or {}, executable=python, which=which)
        assert found[:2] == ["env", "PYTHONDONTWRITEBYTECODE=1"]
        return found[2:]

    assert words() == ["salt-call", *fixed]
    assert words(which=lambda _: "/usr/bin/salt-call") == ["/usr/bin/salt-call", *fixed]
    (tmp_path / "salt-call").touch(mode=0o755)  # as in the one-directory packages
    assert words()[0] == str(tmp_path / "salt-call")
    (tmp_path / "bin/salt-call").touch(mode=0o755)
    assert words()[0] == str(tmp_path / "bin/salt-call")
    opts = {"conf_file": "/srv/salt/minion", "file_client": "local"}
    opts["transactional_update"] = {"salt_call": "/opt/salt-call"}
    assert words(opts)[:4] == ["/opt/salt-call", "--config-dir", "/srv/salt", "--local"]
