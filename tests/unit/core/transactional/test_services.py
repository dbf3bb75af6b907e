import pytest

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
    ],
)
def test_read_wishes(recorded, value, test, expected):
    assert read_wishes(recorded, value, test=test) == expected


WISHES = Wishes(units=(("restart", "web"), ("reload", "bad"), ("restart", "salt-minion")))


def test_live_changes_restart_services():
    run = FakeRunner(
        {
            ("systemctl", "restart", "web"): (0, "", ""),
            ("systemctl", "reload", "bad"): (1, "", "no such unit\n"),
        }
    )
    found = settle(WISHES, run, failed=False, live=True)
    assert found.as_dict() == {
        "done": ["restart web"],
        "failed": {"reload bad": "no such unit"},
        "own": ["restart salt-minion"],
    }


def test_a_new_snapshot_restarts_nothing():
    found = settle(WISHES, FakeRunner(), failed=False, live=False)
    assert found.as_dict() == {"at_reboot": ["restart web", "reload bad", "restart salt-minion"]}


def test_a_failed_transaction_restarts_nothing():
    found = settle(WISHES, FakeRunner(), failed=True, live=False)
    assert found.as_dict() == {"skipped": ["restart web", "reload bad", "restart salt-minion"]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(state(), True), ({}, False), ([], False), ({"a": 1}, False), ({**state(), "a": 1}, False)],
)
def test_is_state_result(value, expected):
    assert services.is_state_result(value) is expected
