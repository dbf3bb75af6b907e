"""What is told of updates, with a real record on disk."""

from pathlib import Path

import pytest
import salt.version

from saltext_safeupdate.admin.status import status
from saltext_safeupdate.admin.updates import rollout_requests
from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.generations.generation import Report, Standing
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.record.parts import Progress
from saltext_safeupdate.core.record.phase import Phase
from tests.support.this_host import VERSIONS, record


class TestStatus:
    def test_idle_where_there_never_was_an_update(self, made):
        found = status.status(made)
        assert found["phase"] == "idle"
        assert found["installed"] == VERSIONS
        assert found["draining"] is False
        assert found["undelivered"] == 0
        assert not made.store.exists()

    def test_the_newest_update(self, made):
        record(made, Phase.WAITING, jid="5", reason="why", versions_from=VERSIONS)
        found = status.status(made)
        assert (found["phase"], found["update"], found["jid"]) == ("waiting", "u1", "5")
        assert (found["from"], found["to"], found["reason"]) == (VERSIONS, {}, "why")

    def test_what_an_update_waits_for(self, made, monkeypatch):
        jobs = ["5 test.sleep", "6 safeupdate.report", "7 state.apply"]
        monkeypatch.setattr(made, "awaited_jobs", lambda but: jobs)
        record(made, Phase.WAITING)
        assert status.status(made)["waits_for"] == ["5 test.sleep", "7 state.apply"]
        assert rollout_requests.report(made)["waits_for"] == 0, "it is of no numbered request"
        record(made, Phase.INSTALLING)
        assert status.status(made)["waits_for"] == []

    def test_without_locks_it_answers_and_says_so(self, made, tmp_path):
        (tmp_path / "run").write_text("not a directory")
        found = status.status(made)
        assert found["draining"] is None
        assert "cannot be used" in found["problem"]

    def test_what_becomes_of_jobs_in_a_restart(self, made):
        found = status.status(made)
        assert found["restart"].startswith("wait: the minion is no service of systemd")
        assert "waited" not in found
        Path(made.settings.run_dir).mkdir(exist_ok=True)
        Path(made.settings.run_dir, "waited").write_text("it did not answer\n")
        assert status.status(made)["waited"] == "it did not answer"

    def test_draining(self, made):
        drain = locks.acquire(made.settings.run_dir, "drain", "")
        assert status.status(made)["draining"] is True
        drain.close()

    @pytest.mark.parametrize("standing", [Standing.OVERLAPPING, Standing.LEAVING])
    def test_beside_an_earlier_minion_it_is_the_version_of_the_one_that_serves(
        self, made, monkeypatch, standing
    ):
        """A job that the earlier one has begun ends later, and knows the old version only."""
        monkeypatch.setattr(processes, "alive", lambda who: True)
        generations, new = Generations(made.store), Report(at=2.0, version="9", extension="8")
        record(made, Phase.WATCHING, progress=Progress(beside=("main:1",)))
        for process, report in (("main:1", Report(at=1.0, version="1")), ("main:2", new)):
            generations.begins(process)
            generations.reports(process, report)
        old = str(salt.version.__version__)
        assert status.status(made)["running"] == old
        generations.stands("main:1", standing)
        assert status.status(made)["running"] == old, "the new one is on trial"
        record(made, Phase.COMMITTED, progress=Progress(beside=("main:1",)))
        assert status.status(made)["running"] == "9"
        told = rollout_requests.report(made)
        assert (told["version"], told["running"], told["extension"]) == ("9", "9", "8")
        monkeypatch.setattr(processes, "alive", lambda who: who == "main:1")
        assert status.status(made)["running"] == old, "the new one has died"


class TestHistory:
    def test_every_phase_newest_update_first(self, made):
        record(made, Phase.WAITING)
        record(made, Phase.POSTPONED, reason="busy")
        record(made, Phase.COMMITTED, id="u2", created=2.0)
        newest, oldest = status.history(made, 20)
        assert newest["update"] == "u2"
        assert [(each["phase"], each["reason"]) for each in oldest["phases"]] == [
            ("waiting", ""),
            ("postponed", "busy"),
        ]
        assert len(status.history(made, 1)) == 1

    def test_none(self, made):
        assert status.history(made, 20) == []

    @pytest.mark.parametrize("limit", [0, -1, "5", None, True, 1.5])
    def test_a_limit_that_is_none(self, made, limit):
        with pytest.raises(InputError, match="limit"):
            status.history(made, limit)
