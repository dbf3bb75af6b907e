import pytest

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.transactional import services
from saltext_safeupdate.core.transactional.programs import recorder
from saltext_safeupdate.core.transactional.services import Wishes, read_wishes, settle
from tests.support.fakes import FakeRunner


@pytest.mark.parametrize(
    ("line", "wish"),
    [
        ("systemctl restart web", {"action": "restart", "units": ["web"]}),
        (
            "systemctl --no-block reload a.service b",
            {"action": "reload", "units": ["a.service", "b"]},
        ),
        ("systemctl -H host try-restart x", {"action": "try-restart", "units": ["x"]}),
        ("systemctl is-active web", None),
        ("systemctl enable web", None),
        ("systemctl daemon-reload", None),
        ("systemctl restart", None),
        ("systemctl", None),
        ("systemctl reboot", {"action": "reboot"}),
        ("systemctl --force reboot", {"action": "reboot"}),
        ("systemctl soft-reboot", {"action": "soft-reboot"}),
        ("systemctl poweroff", {"action": "poweroff"}),
        ("shutdown -r now", {"action": "reboot"}),
        ("shutdown --reboot +5", {"action": "reboot"}),
        ("shutdown -h now", {"action": "poweroff"}),
        ("shutdown now", {"action": "poweroff"}),
        ("shutdown -H", {"action": "halt"}),
        ("shutdown -c", None),
        ("reboot", {"action": "reboot"}),
        ("halt", {"action": "halt"}),
        ("poweroff", {"action": "poweroff"}),
        ("init 6", {"action": "reboot"}),
        ("telinit 0", {"action": "poweroff"}),
        ("init 3", None),
        ("init", None),
        ("rebootmgrctl reboot now", {"action": "reboot"}),
        ("rebootmgrctl soft-reboot", {"action": "soft-reboot"}),
        ("rebootmgrctl status", None),
    ],
)
def test_what_programs_are_asked_for(line, wish):
    name, *words = line.split()
    assert recorder.wish(name, words) == wish


def test_a_wish_is_written_and_the_rest_goes_on(tmp_path, monkeypatch, capsys):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/systemctl"
    assert recorder.main([str(program), "restart", "web"]) == 0
    assert (tmp_path / "wishes").read_text() == '{"action": "restart", "units": ["web"]}\n'
    assert (tmp_path / "wishes").stat().st_mode & 0o777 == 0o600
    started = []
    monkeypatch.setattr(recorder.os, "execv", lambda path, argv: started.append((path, argv)))
    real = tmp_path / "real"
    real.mkdir()
    (real / "systemctl").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{real}")
    recorder.main([str(program), "is-active", "web"])
    assert started == [(str(real / "systemctl"), [str(real / "systemctl"), "is-active", "web"])]
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert recorder.main([str(program), "is-active", "web"]) == 127
    assert "command not found" in capsys.readouterr().err


def state(name="web", comment="", fun="running"):
    return {f"service_|-x_|-{name}_|-{fun}": {"name": name, "comment": comment, "result": True}}


OFFLINE = "Running in OFFLINE mode. Nothing to do"


@pytest.mark.parametrize(
    ("recorded", "value", "test", "expected"),
    [
        ([], None, False, Wishes()),
        (
            [
                {"action": "restart", "units": ["b.service", "a"]},
                {"action": "restart", "units": ["a"]},
            ],
            None,
            False,
            Wishes(units=(("restart", "b"), ("restart", "a"))),
        ),
        (
            [{"action": "condrestart", "units": ["a"]}],
            None,
            False,
            Wishes(units=(("try-restart", "a"),)),
        ),
        ([{"action": "restart", "units": ["--now", "a b", "", 5]}], None, False, Wishes()),
        ([{"action": "restart", "units": "a"}], None, False, Wishes(refused=("restart",))),
        ([{"action": "reboot"}, {"action": "kexec"}], None, False, Wishes(reboot=True)),
        ([{"action": "poweroff"}], None, False, Wishes(refused=("poweroff",))),
        (
            [{"action": "safeupdate.restart", "reason": "x"}],
            None,
            False,
            Wishes(minion=({"action": "safeupdate.restart", "reason": "x"},)),
        ),
        ([], state(comment=OFFLINE), False, Wishes(units=(("start", "web"),))),
        ([], state(comment=OFFLINE, fun="dead"), False, Wishes(units=(("stop", "web"),))),
        ([], state(comment=OFFLINE), True, Wishes()),
        ([], state(comment="running"), False, Wishes()),
        (
            [{"action": "restart", "units": ["web.service"]}],
            state(comment=OFFLINE),
            False,
            Wishes(units=(("restart", "web"),)),
        ),
        (
            [{"action": "boot", "units": ["web.service"], "enabled": False}],
            state(comment=OFFLINE),
            False,
            Wishes(units=(("start", "web"),), enabled={"web": False}),
        ),
    ],
)
def test_read_wishes(recorded, value, test, expected):
    assert read_wishes(recorded, value, test=test) == expected


RESTARTS = ("restart web", "reload bad", "restart salt-minion")
WISHES = Wishes(units=tuple(tuple(words.split()) for words in RESTARTS))


class Minion:
    """The running minion: keeps what it is asked for, and answers, or refuses, as it is told."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def __call__(self, wish):
        self.asked.append(dict(wish))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_live_changes_restart_services():
    run = FakeRunner(
        {
            ("systemctl", "daemon-reload"): (0, "", ""),
            ("systemctl", "restart", "web"): (0, "", ""),
            ("systemctl", "reload", "bad"): (1, "", "no such unit\n"),
        }
    )
    minion = Minion({"kind": "restart"})
    found = settle(WISHES, run, minion, failed=False, live=True)
    assert run.calls[0] == ("systemctl", "daemon-reload")
    assert found.as_dict() == {
        "done": ["restart web"],
        "failed": {"reload bad": "no such unit"},
        "deferred": ["restart salt-minion"],
        "answers": {"safeupdate.restart": {"kind": "restart"}},
    }
    assert minion.asked == [{"action": "safeupdate.restart", "reason": "restart salt-minion"}]


def test_a_new_snapshot_restarts_nothing():
    found = settle(WISHES, FakeRunner(), Minion(), failed=False, live=False)
    assert found.at_reboot == list(RESTARTS)
    assert "with the reboot" in found.answers["safeupdate.restart"]["comment"]


UNITS = (("start", "on"), ("start", "off"), ("stop", "on"), ("stop", "off"), ("stop", "any"))


def test_what_the_boot_will_not_do_is_told():
    wishes = Wishes(units=UNITS, enabled={"on": True, "off": False})
    found = settle(wishes, FakeRunner(), Minion(), failed=False, live=False)
    assert found.at_reboot == ["start on", "stop off", "stop any"]
    assert list(found.not_done) == ["start off", "stop on"]
    assert "'enable: true'" in found.not_done["start off"]
    assert "'enable: false'" in found.not_done["stop on"]
    asked = [("is-active", unit) for unit in ("on", "off", "any")]
    said = dict.fromkeys([("daemon-reload",), *UNITS, *asked], (0, "", ""))
    run = FakeRunner({("systemctl", *words): answer for words, answer in said.items()})
    assert len(settle(wishes, run, Minion(), failed=False, live=True).done) == len(UNITS)
    assert not settle(wishes, FakeRunner(), Minion(), failed=True, live=False).not_done


def test_what_runs_already_is_not_started_and_no_change():
    answers = {
        ("systemctl", "daemon-reload"): (0, "", ""),
        ("systemctl", "is-active", "web"): (0, "active\n", ""),
        ("systemctl", "is-active", "old"): (3, "inactive\n", ""),
    }
    wishes = Wishes(units=(("start", "web"), ("stop", "old")))
    found = settle(wishes, FakeRunner(answers), Minion(), failed=False, live=True)
    assert found.as_dict() == {}


def test_a_failed_transaction_restarts_nothing():
    found = settle(WISHES, FakeRunner(), Minion(), failed=True, live=False)
    assert found.as_dict() == {"skipped": list(RESTARTS)}


def test_the_minion_is_started_restarted_once_and_never_stopped():
    units = (("start", "salt-minion"), ("restart", "salt-minion"), ("stop", "salt-minion"))
    wishes = Wishes(units=units, minion=({"action": "safeupdate.restart", "reason": "mine"},))
    run = FakeRunner(
        {
            ("systemctl", "daemon-reload"): (0, "", ""),
            ("systemctl", "is-active", "salt-minion"): (3, "failed\n", ""),
            ("systemctl", "start", "salt-minion"): (0, "", ""),
        }
    )
    minion = Minion({})
    found = settle(wishes, run, minion, failed=False, live=True)
    assert found.done == ["start salt-minion"]
    assert found.own == ["stop salt-minion"]
    assert found.deferred == ["restart salt-minion", "the minion"]
    assert len(minion.asked) == 1


def test_a_restart_that_is_refused_is_a_failure():
    wishes = Wishes(minion=({"action": "safeupdate.restart", "reason": "mine"},))
    minion = Minion(SafeUpdateError("an update is under way"))
    found = settle(wishes, FakeRunner(), minion, failed=False, live=True)
    assert found.as_dict() == {"failed": {"the minion": "an update is under way"}}


UPDATE = {"action": "safeupdate.update", "version": "3008.3"}
GUARD = {"action": "safeupdate.guard"}
OF_STATE = {**UPDATE, "state": "safeupdate_|-x_|-x_|-updated"}


def test_what_the_minion_answers_to_a_state_becomes_its_result():
    answer = {"result": False, "changes": {}, "comment": "quarantined"}
    minion = Minion(answer, {"phase": "requested"})
    found = settle(
        Wishes(minion=(OF_STATE, UPDATE)), FakeRunner(), minion, failed=False, live=False
    )
    assert found.states == {OF_STATE["state"]: answer}
    assert found.answers == {"safeupdate.update": {"phase": "requested"}}
    assert minion.asked == [{**OF_STATE, "live": False}, {**UPDATE, "live": False}]


def test_a_failed_transaction_asks_the_minion_for_nothing():
    wishes = Wishes(minion=(OF_STATE, UPDATE, GUARD))
    found = settle(wishes, FakeRunner(), Minion(), failed=True, live=False)
    assert found.skipped == ["safeupdate.update"]
    (result,) = found.states.values()
    assert result["result"] is False
    assert "Not asked for" in result["comment"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(state(), True), ({}, False), ([], False), ({"a": 1}, False), ({**state(), "a": 1}, False)],
)
def test_is_state_result(value, expected):
    assert services.is_state_result(value) is expected
