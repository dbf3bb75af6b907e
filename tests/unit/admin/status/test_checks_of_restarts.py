"""What `safeupdate.check` says of restarts."""

import os
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest

from saltext_safeupdate.admin.status import checks_of_restarts
from saltext_safeupdate.core.generations.generation import Report, Standing
from saltext_safeupdate.core.generations.meeting import Meeting
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs import guard_file
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.minion import handing_over
from tests.support.forked import forked
from tests.support.guarded import have_guard


@pytest.fixture
def alive(monkeypatch):
    """Return processes that are there, by their identities, each of which has a job."""
    monkeypatch.setattr(processes, "has_children", lambda pid: True)
    with ExitStack() as stack:
        children = [stack.enter_context(forked(lambda hear, say: hear())) for _ in range(5)]
        yield [processes.identity(each.pid) for each in children]


@pytest.fixture
def host(tmp_path, monkeypatch):
    have_guard(monkeypatch, tmp_path)
    return SimpleNamespace(
        settings=Settings(),
        store=Store(str(tmp_path / "db")),
        services=SimpleNamespace(name="a double", state=lambda unit: SimpleNamespace(running=True)),
        stop_guard=SimpleNamespace(obstacle=lambda: "", differing=list),
        opts={},
    )


def stand(host, processes_, standing):
    for each in processes_:
        Generations(host.store).stands(each, standing)


def found(host):
    return [problem.code for problem in checks_of_restarts.handover(host)]


def test_earlier_minions_are_no_problem(host, alive):
    stand(host, alive[:4], Standing.LEAVING)
    assert found(host) == []


def test_as_many_as_may_stay_are_one(host, alive):
    stand(host, alive[:5], Standing.LEAVING)
    (problem,) = checks_of_restarts.handover(host)
    assert problem.code == "earlier-minions"
    assert "5. The oldest was started 0.0 h ago. No more" in problem.problem


@pytest.mark.parametrize("unit", ["venv-salt-minion", "venv-salt-minion.service"])
def test_what_ends_them_is_said_by_the_name_of_their_unit(host, alive, unit, monkeypatch):
    host.services.state = lambda unit: SimpleNamespace(running=False)
    stand(host, alive[:1], Standing.OVERLAPPING)
    stand(host, alive[1:], Standing.LEAVING)
    monkeypatch.setattr(processes, "age", lambda pid: 30 * 3600.0)
    host.settings = Settings(service=unit, restart="wait")
    problems = list(checks_of_restarts.handover(host))
    assert [each.code for each in problems] == ["not-taken-over", "earlier-minions"]
    for problem in problems:
        assert "'systemctl stop \"venv-salt-minion-before-*.scope\"'" in problem.fix


def test_an_old_one_is_one(host, alive, monkeypatch):
    stand(host, alive[:1], Standing.LEAVING)
    monkeypatch.setattr(processes, "age", lambda pid: 30 * 3600.0)
    (problem,) = checks_of_restarts.handover(host)
    assert "1. The oldest was started 30.0 h ago." in problem.problem
    assert "No more" not in problem.problem


def test_one_that_is_about_to_end_is_none(host, alive, monkeypatch):
    stand(host, alive[:5], Standing.LEAVING)
    about_to_end = processes.pid(alive[2])
    monkeypatch.setattr(processes, "has_children", lambda pid: pid != about_to_end)
    assert found(host) == []


def test_one_that_has_ended_is_none(host, alive, monkeypatch):
    stand(host, alive[:5], Standing.LEAVING)
    monkeypatch.setattr(processes, "alive", lambda process: process != alive[0])
    assert found(host) == []


def test_one_that_serves_on_as_the_service_did_not_come_up_is_told_of(host):
    stand(host, [processes.me()], Standing.OVERLAPPING)
    assert found(host) == []
    host.services.state = lambda unit: SimpleNamespace(running=False)
    assert found(host) == ["not-taken-over"]


@pytest.mark.parametrize(
    ("opts", "guard", "why"),
    [
        ({"multiprocessing": False}, "", "'multiprocessing' is off"),
        ({"ipc_mode": "tcp"}, "", "'ipc_mode: tcp'"),
        ({}, "no systemd-run", "no systemd-run"),
    ],
)
def test_what_makes_a_restart_wait_is_told(host, opts, guard, why):
    host.opts = opts
    host.stop_guard.obstacle = lambda: guard
    (problem,) = checks_of_restarts.handover(host)
    assert problem.code == "restart-waits"
    assert why in problem.problem


def test_who_has_it_wait_is_not_told_so(host):
    host.settings, host.opts = Settings(restart="wait"), {"multiprocessing": False}
    assert found(host) == []


@pytest.mark.parametrize(
    "lacks",
    [
        lambda host: setattr(host, "stop_guard", None),
        lambda host: setattr(host.stop_guard, "differing", lambda: ["the drop-in"]),
        lambda host: os.unlink(guard_file.GROUPS),
    ],
    ids=["systemd", "guard", "control groups"],
)
def test_what_nobody_can_change_or_is_told_elsewhere_is_not_told(host, lacks):
    host.opts = {"multiprocessing": False}
    lacks(host)
    assert found(host) == []


class TestDescribed:
    """What the status says of the next restart."""

    @pytest.fixture(autouse=True)
    def ready(self, host, tmp_path):
        host.settings = Settings(run_dir=str(tmp_path / "run"))
        Generations(host.store).reports(processes.me(), Report(at=1.0))
        self.meeting = Meeting(host.settings.run_dir, os.getppid())
        self.meeting.open()

    def test_it_hands_over(self, host):
        assert handing_over.described(host) == "handover"

    def test_by_the_setting_it_waits(self, host):
        host.settings = replace(host.settings, restart="wait")
        assert handing_over.described(host) == "wait: 'safeupdate:restart' is 'wait'"

    def test_without_systemd_it_waits(self, host):
        host.stop_guard = None
        assert handing_over.described(host).startswith("wait: the minion is no service of systemd")

    def test_one_that_cannot_be_asked_waits(self, host):
        self.meeting.end()
        assert handing_over.described(host).startswith("wait: the running minion cannot be asked")

    def test_one_without_a_parent_of_salt_waits(self, host, monkeypatch):
        monkeypatch.setattr(processes, "parent", lambda pid: 1)
        assert "as with '--disable-keepalive'" in handing_over.described(host)

    def test_one_that_is_gone_is_no_minion(self, host, monkeypatch):
        monkeypatch.setattr(processes, "alive", lambda process: False)
        assert handing_over.described(host) == "wait: no minion with this extension runs"

    def test_one_more_than_may_stay_waits(self, host, alive):
        stand(host, alive, Standing.LEAVING)
        assert "no more may stay" in handing_over.described(host)


CIB = """<cib><configuration><op_defaults>{usual}</op_defaults><resources><group id="g">
<primitive id="web" class="systemd" type="nginx"/>
<primitive id="salt" class="{kind}" type="{unit}"><operations>{stop}</operations></primitive>
</group></resources></configuration></cib>"""
USUAL = '<meta_attributes id="o"><nvpair id="t" name="timeout" value="{}"/></meta_attributes>'
STOP = '<op id="s" name="stop" interval="0s" timeout="{}"/>'


@pytest.mark.parametrize(
    ("told", "given"),
    [
        ({}, "20 s"),
        ({"stop": STOP.format("100s")}, "100 s"),
        ({"stop": STOP.format("2min")}, "120 s"),
        ({"usual": USUAL.format("30")}, "30 s"),
        ({"stop": STOP.format("900s"), "usual": USUAL.format("30")}, ""),
        ({"stop": STOP.format("PT1M")}, ""),
        ({"unit": "salt-master"}, ""),
        ({"kind": "ocf"}, ""),
    ],
)
def test_a_cluster_that_gives_a_stop_less_time_is_named(host, tmp_path, monkeypatch, told, given):
    cib = tmp_path / "cib.xml"
    usual = {"usual": "", "stop": "", "kind": "systemd", "unit": "salt-minion"}
    cib.write_text(CIB.format(**{**usual, **told}))
    monkeypatch.setattr(checks_of_restarts, "_CIB", str(cib))
    found = [each.problem for each in checks_of_restarts.cluster(host)]
    assert [f"resource salt gives a stop of salt-minion {given}," in each for each in found] == (
        [True] if given else []
    )


@pytest.mark.parametrize("text", [None, "no XML"])
def test_without_a_cluster_nothing_is_said(host, tmp_path, monkeypatch, text):
    cib = tmp_path / "cib.xml"
    if text is not None:
        cib.write_text(text)
    monkeypatch.setattr(checks_of_restarts, "_CIB", str(cib))
    assert list(checks_of_restarts.cluster(host)) == []
