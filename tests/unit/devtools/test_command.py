"""How ``./dev`` runs programs."""

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
