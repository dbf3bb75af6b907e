"""What returns 0 is committed: the witness says 0 only for a command that came to its own end."""

import os
import signal

import pytest

from saltext_safeupdate.core.transactional.programs import witness

# A command that returns 0 when it is told to stop, as salt-call does.
STOPPED = "kill -TERM $PPID; exit 0"


def test_who_was_told_to_stop_has_not_succeeded(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    place = tmp_path / "status"
    assert witness.main(["w", str(place), "/bin/sh", "-c", STOPPED]) == 128 + signal.SIGTERM
    assert place.read_text() == f"{-signal.SIGTERM}\n"
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 1), ("touch answer", 0), ("touch answer; exit 7", 7)]
)
def test_without_an_answer_it_has_not_succeeded(tmp_path, monkeypatch, script, status):
    monkeypatch.chdir(tmp_path)
    words = ["w", "--answer", str(tmp_path / "status"), "/bin/sh", "-c", script]
    assert witness.main(words) == status
    assert (tmp_path / "status").read_text() == f"{status}\n"
    assert os.stat(tmp_path / "status").st_mode & 0o777 == 0o600
