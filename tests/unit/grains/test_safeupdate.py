import pytest
import salt.version

from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.record.parts import Boot
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.grains import safeupdate as grains

RUNNING = str(salt.version.__version__)


@pytest.fixture
def state_dir(tmp_path, monkeypatch):
    directory = tmp_path / "state"
    opts = {"safeupdate": {"state_dir": str(directory), "run_dir": str(tmp_path / "run")}}
    monkeypatch.setattr(grains, "__opts__", opts, raising=False)
    return directory


def _record(state_dir, phase, **changes):
    Store(f"{state_dir}/safeupdate.db").save(
        Update(**{"id": "u1", "kind": "update", "phase": phase, "created": 1.0, **changes})
    )


def test_a_minion_that_was_never_updated_is_idle_and_looking_writes_nothing(state_dir):
    assert grains.safeupdate() == {
        "safeupdate": {"version": RUNNING, "phase": "idle", "pending": False}
    }
    assert not state_dir.exists()


def test_a_minion_that_has_had_jobs_and_no_update_is_idle(state_dir):
    Ledger(f"{state_dir}/safeupdate.db").record_from_now()
    assert grains.safeupdate()["safeupdate"]["phase"] == "idle"


@pytest.mark.parametrize("phase", Phase)
def test_what_an_update_ends_in_is_shown_and_no_phase_before_it(state_dir, phase):
    _record(state_dir, phase)
    grain = grains.safeupdate()["safeupdate"]
    shown = phase.value if phase.final else "idle"
    assert grain == {"version": RUNNING, "phase": shown, "pending": False}


def test_the_end_of_the_one_before_is_shown_while_an_update_is_under_way(state_dir):
    _record(state_dir, Phase.COMMITTED)
    _record(state_dir, Phase.WATCHING, id="u2", created=2.0)
    assert grains.safeupdate()["safeupdate"]["phase"] == "committed"


def test_a_reboot_that_is_pending_is_shown(state_dir):
    boot = Boot(awaits=(processes.boot(), Phase.WAITING_FOR_BOOT.value))
    _record(state_dir, Phase.WAITING_FOR_BOOT, boot=boot)
    grain = grains.safeupdate()["safeupdate"]
    assert grain == {"version": RUNNING, "phase": "waiting_for_boot", "pending": True}


def test_the_reason_of_an_end_is_shown_and_that_of_a_request_is_not(state_dir):
    _record(state_dir, Phase.WAITING, reason="config")
    assert "reason" not in grains.safeupdate()["safeupdate"]
    _record(state_dir, Phase.FAILED, reason="no space")
    assert grains.safeupdate()["safeupdate"]["reason"] == "no space"


def test_a_database_that_cannot_be_read_is_unknown_and_not_idle(state_dir):
    (state_dir / "safeupdate.db").mkdir(parents=True)
    grain = grains.safeupdate()["safeupdate"]
    assert grain["phase"] == "unknown"
    assert "safeupdate.db" in grain["reason"]


def test_a_record_of_a_newer_version_is_unknown(state_dir):
    _record(state_dir, Phase.WAITING)
    with Store(f"{state_dir}/safeupdate.db").transaction() as db:
        db.execute("UPDATE updates SET phase = 'hibernating'")
    assert grains.safeupdate()["safeupdate"]["phase"] == "unknown"


def test_a_configuration_that_is_not_valid_is_unknown(monkeypatch):
    monkeypatch.setattr(grains, "__opts__", {"safeupdate": {"nonsense": 1}}, raising=False)
    grain = grains.safeupdate()["safeupdate"]
    assert grain["phase"] == "unknown"
    assert "nonsense" in grain["reason"]
