"""The files that set a minion up, on a real disk."""

import pytest
import salt.utils.yaml

from saltext_safeupdate.admin.set_up import SetUp, configuration
from saltext_safeupdate.core.errors import SafeUpdateError


class FakeGuard:
    """A stop guard of one file, which is there or not."""

    def __init__(self, drop_in):
        self._path, self.drop_in = drop_in, str(drop_in)

    def differing(self):
        return [] if self._path.exists() else [self.drop_in]

    def install(self):
        self._path.write_text("guard")

    def remove(self):
        self._path.unlink(missing_ok=True)


@pytest.fixture
def made(made, tmp_path):
    made.stop_guard = FakeGuard(tmp_path / "guard.conf")
    return made


@pytest.fixture
def config(tmp_path):
    return str(tmp_path / "safeupdate.conf")


@pytest.mark.parametrize(
    ("opts", "executors", "engines"),
    [
        ({}, ["safeupdate", "direct_call"], [{"safeupdate": {}}]),
        (
            {"module_executors": ["sudo"], "engines": [{"other": {"a": 1}}]},
            ["safeupdate", "sudo"],
            [{"other": {"a": 1}}, {"safeupdate": {}}],
        ),
        (
            {"module_executors": ["safeupdate", "sudo"], "engines": {"safeupdate": {}, "b": {}}},
            ["safeupdate", "sudo"],
            [{"b": {}}, {"safeupdate": {}}],
        ),
    ],
)
def test_what_the_minion_has_is_kept_and_ours_is_added_once(opts, executors, engines):
    text = configuration(opts)
    assert salt.utils.yaml.safe_load(text) == {"module_executors": executors, "engines": engines}
    assert text.startswith("# Managed by")


def test_nothing_is_written_before_it_is_carried_out(made, config):
    wanted = SetUp(made, config, True)
    assert wanted.restarts
    assert set(wanted.changes()) == {config, made.stop_guard.drop_in}
    assert set(SetUp(made, config, True).changes()) == {config, made.stop_guard.drop_in}
    wanted.carry_out()
    again = SetUp(made, config, True)
    assert (again.changes(), again.restarts) == ({}, False)


def test_the_stop_guard_alone_needs_no_restart(made, config):
    SetUp(made, config, False).carry_out()
    wanted = SetUp(made, config, True)
    assert (list(wanted.changes()), wanted.restarts) == ([made.stop_guard.drop_in], False)


def test_a_stop_guard_that_is_not_wanted_is_removed(made, config):
    SetUp(made, config, True).carry_out()
    wanted = SetUp(made, config, False)
    assert wanted.changes() == {made.stop_guard.drop_in: {"old": "stop guard", "new": ""}}
    wanted.carry_out()
    assert SetUp(made, config, False).changes() == {}


@pytest.mark.parametrize("guarded", [True, False])
def test_a_host_without_systemd_has_no_stop_guard(made, config, guarded):
    made.stop_guard = None
    wanted = SetUp(made, config, guarded)
    assert list(wanted.changes()) == [config]
    wanted.carry_out()
    assert SetUp(made, config, guarded).changes() == {}


def test_a_configuration_that_cannot_be_written_is_an_error(made, tmp_path):
    (tmp_path / "directory").mkdir()
    wanted = SetUp(made, str(tmp_path / "missing" / "x.conf"), False)
    (tmp_path / "missing").touch()
    with pytest.raises(SafeUpdateError, match="The configuration is as it was"):
        wanted.carry_out()
