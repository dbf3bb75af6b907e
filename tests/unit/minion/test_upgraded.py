"""Who asks for the restart when another version of the extension was installed."""

import os
import sys

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.minion.upgraded import restart_if_due

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
