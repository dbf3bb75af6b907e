"""What is told of updates, with a real record on disk."""

from pathlib import Path

import pytest

from saltext_safeupdate.admin.status import status
from saltext_safeupdate.admin.updates import rollout_requests
from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.host import locks
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
