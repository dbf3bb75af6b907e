"""A state whose command waited for the stop of the minion, and was ended by the stop guard."""

import os

import pytest

COMMAND = "systemctl restart salt-minion"


@pytest.fixture
def ended(minion):
    """Return a shell command that ends as one that the stop guard has ended."""
    (minion.path / "locks").mkdir(exist_ok=True)
    note = minion.path / "locks" / f"let_go.{os.getpid()}"
    return f"echo ' {COMMAND} ' > {note}; exit 143"


@pytest.mark.parametrize("more", [{"timeout": 60}, {"retry": {"attempts": 1}}, {"onlyif": "true"}])
def test_it_says_that_the_restart_still_comes(minion, ended, more):
    ret = minion.apply(
        {
            "first": {"cmd.run": [{"name": "exit 3"}]},
            "restart": {"cmd.run": [{"name": ended}, more]},
            "last": {"cmd.run": [{"name": "exit 3 # again"}]},
        }
    )
    assert ret["restart"]["result"] is False
    comment = ret["restart"]["comment"]
    assert f"ended '{COMMAND}'" in comment
    assert "still comes, when all jobs have ended" in comment
    assert comment.startswith("Command "), "what Salt says of it stays"
    for other in ("first", "last"):
        assert "stop guard" not in ret[other]["comment"]
