"""How ``./dev`` runs programs."""

import threading

import pytest

from devtools import command, processes
from tests.support.waiting import wait_for

pytestmark = pytest.mark.usefixtures("real_process")


def test_a_program_that_has_ended_is_not_waited_for_because_of_what_it_left(tmp_path):
    left = tmp_path / "left"
    script = f"sleep 600 & echo $! > {left}; echo said"
    result = command.run(["sh", "-c", script], timeout=300)
    assert (result.rc, result.stdout) == (0, "said\n")
    who = processes.identity(int(left.read_text()))
    wait_for(lambda: not processes.alive(who), "the program that was left ends")


def test_a_program_that_ignores_the_end_is_killed(tmp_path, monkeypatch):
    """As one does whose library takes the interrupt for itself."""
    monkeypatch.setattr(command, "stopping", threading.Event())
    monkeypatch.setattr(command, "STOP_TIMEOUT", 0.5)
    ignores, outcome = tmp_path / "ignores", []

    def work():
        try:
            command.run(["sh", "-c", f"trap '' INT; echo $$ > {ignores}; sleep 600"], timeout=300)
        except command.Stopped as err:
            outcome.append(err)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: ignores.exists() and ignores.read_text(), "it runs")
    who = processes.identity(int(ignores.read_text()))
    command.interrupt_all()
    thread.join()
    assert len(outcome) == 1
    assert not processes.alive(who)
