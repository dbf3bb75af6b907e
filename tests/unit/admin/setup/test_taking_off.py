"""What of ours goes from a host, what stays, and what has to be settled first."""

import contextlib
import os

import pytest
import salt.config
import salt.utils.yaml

from saltext_safeupdate import hooks
from saltext_safeupdate.admin.setup.set_up import SetUp
from saltext_safeupdate.admin.setup.taking_off import TakingOff
from saltext_safeupdate.core.errors import LockHeldError, SafeUpdateError
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.host.engine_at_rest import Rest
from saltext_safeupdate.core.record.facts import LEAVING, MADE
from saltext_safeupdate.core.record.parts import Boot
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.minion import kept_returns
from tests.support.this_host import record

JOB = {"jid": "1", "fun": "test.ping", "master": "m"}


@pytest.fixture
def config(tmp_path):
    """The directory of the configuration."""
    path = tmp_path / "etc"
    (path / "minion.d").mkdir(parents=True)
    return path


@pytest.fixture
def made(made, tmp_path, config, monkeypatch):
    """A minion in whose process nothing of ours is."""
    monkeypatch.setattr(hooks, "_installed", {})
    made.opts = {
        **salt.config.DEFAULT_MINION_OPTS,
        **made.opts,
        "conf_file": str(config / "minion"),
        "extension_modules": str(tmp_path / "extmods"),
        "grains": {"id": "minion"},
    }
    return made


@pytest.fixture
def ours(config):
    return config / "minion.d" / "_safeupdate.conf"


def _read(path):
    return salt.utils.yaml.safe_load(path.read_text())


class TestConfiguration:
    def test_a_minion_that_is_not_set_up(self, made, tmp_path):
        before = sorted(tmp_path.rglob("*"))
        wanted = TakingOff(made)
        assert (wanted.changes(), wanted.restarts) == ({}, False)
        assert sorted(tmp_path.rglob("*")) == before

    def test_it_removes_the_file_and_the_directory_that_was_made_for_it(self, made, ours):
        ours.parent.rmdir()
        SetUp(made, None, False).carry_out()
        assert made.store.fact(MADE) == (str(ours.parent),)
        TakingOff(made).carry_out()
        assert not ours.exists()
        assert made.store.fact(LEAVING).directories[-1] == str(ours.parent)

    def test_stand_ins_go_when_the_minion_does_not_ask_our_executor_any_more(
        self, made, config, ours
    ):
        SetUp(made, None, False).carry_out()
        directory = config.with_name(f"{config.name}-safeupdate") / "minion"
        wanted = TakingOff(made)
        assert wanted.changes()[str(directory)] == {"old": "stand-ins", "new": ""}
        wanted.carry_out()
        asked = made.store.fact(LEAVING)
        there = {str(path) for path in directory.rglob("*.py")}
        assert len(there) == 3
        assert there <= set(asked.files)
        # Python compiles what Salt loads.
        (directory / "executor" / "__pycache__").mkdir()
        (directory / "executor" / "__pycache__" / "x.pyc").touch()
        wanted._leaving()._remove(asked)
        assert not directory.parent.exists()
        assert ours.parent.exists()

    @pytest.mark.parametrize("engines", [["a", {"b": {"c": 1}}], {"a": {}, "b": None}])
    def test_what_was_repeated_of_the_main_file_goes(self, made, config, ours, engines):
        main = {"engines": engines, "module_executors": ["splay", "direct_call"]}
        (config / "minion").write_text(salt.utils.yaml.safe_dump(main))
        SetUp(made, None, False).carry_out()
        TakingOff(made).carry_out()
        assert not ours.exists()

    def test_what_others_have_written_there_stays(self, made, ours):
        SetUp(made, None, False).carry_out()
        mine = {"engines": [{"safeupdate": {}}, {"mine": {"token": "secret"}}], "id": "x"}
        mine |= {"module_executors": ["safeupdate", "direct_call"], "safeupdate": {"attempts": 3}}
        head = ours.read_text().splitlines(keepends=True)[0]
        ours.write_text(head + salt.utils.yaml.safe_dump(mine))
        wanted = TakingOff(made)
        assert "secret" not in str((wanted.changes(), wanted.stays))
        assert "engines (mine)" in wanted.stays
        wanted.carry_out()
        assert not ours.read_text().startswith("#")
        left = {"engines": [{"mine": {"token": "secret"}}], "safeupdate": {"attempts": 3}}
        assert _read(ours) == {**left, "id": "x"}
        assert TakingOff(made).changes().keys() == {made.settings.state_dir}

    @pytest.mark.parametrize(
        "by_hand", [{"engines": ["safeupdate"]}, {"module_executors": ["safeupdate", "splay"]}]
    )
    def test_what_was_set_up_by_hand_is_left_to_hands(self, made, config, ours, by_hand):
        (config / "minion").write_text(salt.utils.yaml.safe_dump(by_hand))
        SetUp(made, None, False).carry_out()
        before = ours.read_text()
        with pytest.raises(SafeUpdateError, match=rf"in {next(iter(by_hand))}\. Nothing was"):
            TakingOff(made)
        assert ours.read_text() == before


class TestWhatIsKept:
    @pytest.fixture
    def leftovers(self, made):
        """A minion that runs without us, on a host that still has everything."""
        made.ledger.record_from_now()
        locks.Lock(made.settings.run_dir, "jobs").close()
        return made

    def test_it_goes_at_once_if_nobody_uses_it(self, leftovers):
        wanted = TakingOff(leftovers)
        assert not wanted.restarts
        assert set(wanted.changes()) == {leftovers.settings.state_dir, leftovers.settings.run_dir}
        assert wanted.carry_out() == ""
        assert not any(map(os.path.exists, wanted.changes()))

    @pytest.mark.parametrize("who", ["hooks", "engine", "rest", "supervisor", "restart"])
    def test_it_waits_for_a_restart_if_somebody_does(self, leftovers, who, monkeypatch):
        if who == "hooks":
            monkeypatch.setattr(hooks, "_installed", {"pid": 1})
        elif who == "restart":
            record(leftovers, Phase.WAITING, kind="restart")
        elif who == "rest":
            now = processes.since_boot()
            with contextlib.closing(locks.Lock(leftovers.settings.run_dir, "engine")) as lock:
                Rest(processes.me(), "signs", now, now).write(lock)
        else:
            held = locks.Lock(leftovers.settings.run_dir, who)
            assert held.try_exclusive()
        wanted = TakingOff(leftovers)
        assert wanted.restarts
        assert wanted.carry_out() == ""
        assert os.path.exists(leftovers.store.path)
        assert leftovers.store.fact(LEAVING).config == leftovers.opts["conf_file"]
        # The master must not take jobs of the time after for missed ones.
        assert leftovers.ledger.known(["20990101000000000000"]) == {
            "20990101000000000000": "unknown"
        }


class TestRefused:
    @pytest.fixture
    def wanted(self, made):
        made.ledger.record_from_now()
        return made

    @pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.final])
    def test_during_an_update(self, wanted, phase):
        record(wanted, phase)
        with pytest.raises(LockHeldError, match=r"u1 is under way.*Nothing was changed.*'safeup"):
            TakingOff(wanted)

    def test_while_a_restart_waits_for_a_boot(self, wanted):
        boot = Boot(awaits=(processes.boot(), Phase.WAITING.value))
        record(wanted, Phase.WAITING, kind="restart", boot=boot)
        with pytest.raises(LockHeldError, match="u1 is under way"):
            TakingOff(wanted)

    def test_with_jobs_that_only_we_bring_to_their_end(self, wanted):
        ledger = wanted.ledger
        ledger.hold("1", **JOB, call=b"", owner="")
        ledger.add_undelivered("2", **{**JOB, "jid": "2"}, payload=b"x")
        ledger.accept("3", **{**JOB, "jid": "3"}, call=b"", owner="")
        ledger.accept("4", **{**JOB, "jid": "4"}, call=b"", owner="")
        ledger.begin("4", "")
        with pytest.raises(LockHeldError) as refused:
            TakingOff(wanted)
        for each in (
            "4 jobs would be lost",
            "1 test.ping (held)",
            "2 test.ping (its return is not delivered)",
            "3 test.ping (interrupted)",
            "4 test.ping (interrupted)",
            "Nothing was changed",
            "'safeupdate.forget'",
        ):
            assert each in str(refused.value)

    def test_with_a_return_that_is_kept_beside_the_database(self, wanted):
        os.makedirs(wanted.opts["cachedir"])
        kept_returns.keep(wanted.opts, b"x", key="", retcode=0, **JOB)
        with pytest.raises(LockHeldError, match=r"1 test\.ping \(its return is not delivered\)"):
            TakingOff(wanted)
        assert kept_returns.paths(wanted.opts) == []
        assert [job.jid for job in wanted.ledger.undelivered()] == ["1"]

    def test_not_for_jobs_that_run(self, wanted):
        me = processes.identity(os.getpid())
        for jid in ("1", "2", "3"):
            wanted.ledger.accept(jid, **{**JOB, "jid": jid}, call=b"", owner=me)
        for jid in ("2", "3"):
            wanted.ledger.begin(jid, me)
        wanted.ledger.finish("3", b"x")
        TakingOff(wanted)
