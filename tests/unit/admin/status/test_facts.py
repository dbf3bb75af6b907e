import pytest
import salt.version
from salt.exceptions import CommandExecutionError, SaltReqTimeoutError

from saltext_safeupdate.admin.status import facts
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.runners import safeupdate as runner


def _answers(runner, pillar=None):
    def ask(function):
        assert function == "safeupdate.master_version"
        if isinstance(runner, Exception):
            raise runner
        return runner

    return {"publish.runner": ask, "pillar.items": lambda: pillar}


def test_the_master_tells_its_version():
    assert facts.master_version(_answers("3008.3"), {}) == "3008.3"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        "'safeupdate.master_version' runner publish timed out",
        "'safeupdate.master_version' is not available.",
        "No access to master. If using salt-call with --local, please remove.",
        SaltReqTimeoutError("Message timed out"),
    ],
)
def test_a_master_that_does_not_tell_is_not_guessed_at(answer):
    assert facts.master_version(_answers(answer), {}) is None


def test_a_master_that_tells_by_its_pillar_is_asked_for_a_new_one():
    old, new = ({"master": {"saltversion": version}} for version in ("3007.15", "3008.3"))
    assert facts.master_version(_answers({}, new), old) == "3008.3"
    assert facts.master_version(_answers({}, {}), old) is None


def test_a_pillar_of_a_user_that_is_called_master_is_none_of_ours():
    ours = {"master": "salt.example"}
    assert facts.master_version(_answers({}, None), ours) is None


def test_the_runner_tells_what_runs():
    assert runner.master_version() == salt.version.__version__


@pytest.mark.parametrize("answer", [["Rendering SLS 'x' failed"], {}, None])
def test_states_that_cannot_be_rendered_are_an_error(answer):
    with pytest.raises(SafeUpdateError, match="cannot be rendered"):
        facts.state_uses({}, {"state.show_lowstate": lambda **_: answer})


def test_states_that_raise_are_an_error():
    def fails(**_):
        raise CommandExecutionError("Pillar failed to render")

    with pytest.raises(SafeUpdateError, match="Pillar failed to render"):
        facts.state_uses({}, {"state.show_lowstate": fails})
