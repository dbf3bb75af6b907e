import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host import direct
from saltext_safeupdate.core.host.direct import Direct
from saltext_safeupdate.core.host.service import ServiceState
from tests.support.fakes import FakeRunner

UNIT = "salt-minion"
OK = (0, "", "")


class TestWithoutSystemd:
    @pytest.fixture(autouse=True)
    def _has_service(self, monkeypatch):
        monkeypatch.setattr(direct.shutil, "which", lambda name: f"/usr/sbin/{name}")

    @pytest.mark.parametrize(
        ("verb", "method"), [("restart", "begin_restart"), ("start", "start"), ("stop", "stop")]
    )
    def test_the_service_program_is_asked(self, verb, method):
        run = FakeRunner({("service", UNIT, verb): OK})
        getattr(Direct(run), method)(UNIT)
        assert run.calls == [("service", UNIT, verb)]

    def test_a_reboot_is_asked_for(self):
        run = FakeRunner({("shutdown", "-r", "now", "why"): OK})
        Direct(run).reboot("why")
        assert len(run.calls) == 1

    @pytest.mark.parametrize(
        ("code", "active"),
        [(0, "active"), (3, "inactive"), *((code, "unknown") for code in (1, 2, 4, 5, 127, 150))],
    )
    def test_only_the_lsb_status_3_is_not_running(self, code, active):
        run = FakeRunner({("service", UNIT, "status"): (code, "", "")})
        state = Direct(run).state(UNIT)
        assert state == ServiceState(active, "", 0)
        assert state.running is (code != 3)

    @pytest.mark.parametrize("place", ["init.d/salt-minion", "init/salt-minion.conf", ""])
    def test_a_service_that_is_not_defined_cannot_be_restarted(self, tmp_path, place):
        for name in ("init.d", "init"):
            (tmp_path / name).mkdir()
        if place:
            (tmp_path / place).touch()
        scripts = (f"{tmp_path}/init.d/{{}}", f"{tmp_path}/init/{{}}.conf")
        found = Direct(FakeRunner(), scripts=scripts).obstacle(UNIT)
        assert ("has no service salt-minion" in found) is not bool(place)

    def test_nothing_can_be_inhibited_and_nothing_has_to_be_undone(self):
        manager = Direct(FakeRunner())
        manager.inhibit(UNIT)
        assert not manager.inhibited(UNIT)
        manager.release(UNIT)
        manager.set_enabled(UNIT, "enabled")

    def test_programs_are_detached(self):
        started = []
        Direct(FakeRunner(), started.append).spawn("x", ["/bin/true"])
        assert started == [["/bin/true"]]

    def test_a_host_with_nothing_says_what_to_do(self, monkeypatch):
        monkeypatch.setattr(direct.shutil, "which", lambda name: None)
        manager = Direct(FakeRunner())
        assert manager.state(UNIT).active == "unknown"
        assert "neither systemd nor the program 'service'" in manager.obstacle(UNIT)
        with pytest.raises(CommandError, match="do it by hand"):
            manager.start(UNIT)


@pytest.mark.usefixtures("real_process")
def test_a_detached_program_is_nobodys_child_and_has_no_lock(tmp_path):
    out = tmp_path / "out"
    secret = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(secret, True)
    script = (
        f"(ps -o ppid=,sid=,pid= -p $$ 2>/dev/null || cut -d' ' -f4,6,1 /proc/$$/stat);"
        f" ls -l /proc/self/fd > {out}.fds; echo done > {out}"
    )
    direct.detach(["/bin/sh", "-c", script])
    while not (out.exists() and out.read_text()):
        pass
    os.close(secret)
    assert str(tmp_path) not in pathlib.Path(f"{out}.fds").read_text().replace(f"{out}.fds", "")


def test_without_systemd_nothing_is_armed():
    manager = Direct(FakeRunner({}))
    manager.arm("name", ["/bin/true"])
    manager.rest("name")
    manager.disarm("name")
