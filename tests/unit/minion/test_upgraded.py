"""Who asks for the restart when another version of the extension was installed."""

import os
import sys

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.minion.upgraded import restart_for_hooks, restart_if_due

OPTS = {"conf_file": "/etc/salt2/minion"}


class Upgrade:
    def __init__(self, version):
        self.version, self.settled, self.tidied = version, False, 0

    def noticed(self):
        return "" if self.settled else self.version

    def tidy(self):
        self.tidied += 1

    def settle(self):
        self.settled = True


@pytest.fixture
def calls():
    return []


@pytest.fixture
def run(calls):
    return lambda argv, *, timeout: calls.append((argv, timeout))


def test_a_process_of_its_own_asks_once(run, calls):
    upgrade = Upgrade("2.0")
    for _ in range(3):
        restart_if_due(upgrade, Settings(restart_jitter=300.0), OPTS, run)
    assert upgrade.tidied == 1
    ((argv, _),) = calls
    assert argv[0] == sys.executable
    assert argv[argv.index("-c", 2) + 1] == os.path.dirname(OPTS["conf_file"])
    assert argv[-3:] == (
        "safeupdate.restart",
        "reason=version 2.0 of saltext-safeupdate",
        "jitter=300",
    )


@pytest.mark.parametrize(
    ("version", "settings"), [("", Settings()), ("2.0", Settings(extension_restart="manual"))]
)
def test_nobody_is_asked(run, calls, version, settings):
    restart_if_due(Upgrade(version), settings, OPTS, run)
    assert calls == []


def test_it_is_tried_again_if_it_is_refused():
    def refuse(argv, *, timeout):
        raise CommandError(argv, "exit status 1", stderr="An update is under way.")

    upgrade = Upgrade("2.0")
    with pytest.raises(CommandError, match="under way"):
        restart_if_due(upgrade, Settings(), OPTS, refuse)
    assert not upgrade.settled


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "safeupdate.db"))


def test_a_minion_without_hooks_restarts_once_and_not_for_ever(store, run, calls, caplog):
    for at, times in ((1e9, 1), (1e9 + 60, 1), (1e9 + 4000, 2)):
        assert restart_for_hooks(store, Settings(), OPTS, run, lambda at=at: at)
        assert len(calls) == times
    assert calls[0][0][-2] == "reason=saltext-safeupdate can be loaded again"
    assert caplog.text.count("just restarted for that, without success") == 1


def test_a_minion_without_hooks_is_left_alone_if_the_administrator_wants_that(
    store, run, calls, caplog
):
    assert restart_for_hooks(store, Settings(extension_restart="manual"), OPTS, run)
    assert calls == []
    assert "then restart the minion" in caplog.text


def test_a_restart_that_cannot_be_asked_for_is_asked_for_again(store, run, calls):
    def fails(argv, *, timeout):
        raise CommandError(argv, "exit status 1")

    with pytest.raises(CommandError):
        restart_for_hooks(store, Settings(), OPTS, fails)
    assert restart_for_hooks(store, Settings(), OPTS, run)
    assert len(calls) == 1
