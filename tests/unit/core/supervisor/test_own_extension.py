"""An update of this extension: the phases of every update, and its own files."""

import json

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.prepare.own_extension import NAME, OwnExtension
from saltext_safeupdate.core.prepare.revisions import PREVIOUS, Previous
from saltext_safeupdate.core.prepare.staging import Staging
from saltext_safeupdate.core.record.parts import Code, Request
from saltext_safeupdate.core.record.phase import Phase
from tests.support import wheels

from ..conftest import OLD
from ..prepare.test_own_extension import Pip

REQUEST = Request(version="1.2", when="now", extension=True)


@pytest.fixture
def place(host):
    """The extension in the tree of Salt."""
    return wheels.install(host.root / "lib", "1.1")


@pytest.fixture
def extended(host, place, tmp_path):
    """Return the host, whose supervisors know what updates the extension."""
    wheels.write(tmp_path / "wheels", "1.2")
    pip = Pip(tmp_path / "wheels")
    manager = OwnExtension(str(place), "/opt/salt/bin/python3", pip)
    program = tmp_path / "salt-minion"
    program.write_text("#!/opt/salt/bin/python3\n")
    host.services.program = lambda unit: str(program)
    host.loads = True

    def command(argv, *, timeout, **kwargs):
        if argv[-1] == "saltext_safeupdate" and not host.loads:
            raise CommandError(argv, "exit status 1", returncode=1)
        return Result(argv=tuple(argv), returncode=0, stdout=json.dumps({}), stderr="")

    context = host.context
    host.context = lambda taken, **kwargs: context(
        taken, **{"extension": lambda update: manager, "command": command, **kwargs}
    )
    host.extension = manager
    return host


def _ask(host, place):
    """Ask for it, as somebody does who has staged it."""
    Staging(host.settings.state_dir, host.store, host.extension).stage({NAME: "1.2"})
    return host.record(
        Phase.REQUESTED,
        jid="",
        request=REQUEST,
        code=Code(
            own=(NAME,), roots=(str(host.root),), extension=str(place / "saltext_safeupdate")
        ),
        versions_from={NAME: "1.1"},
        versions_to={NAME: "1.2"},
    )


def test_it_goes_the_way_of_every_update(extended, place):
    staged = Staging(extended.settings.state_dir, extended.store, extended.packages)
    extended.packages.offers = {name: ["3007.15", OLD[name]] for name in OLD}
    staged.stage({"salt": "3007.15", "salt-minion": "3007.15"})
    extended.store.set_fact(PREVIOUS, Previous(update="u0", versions={}))
    extended.steps("1.2-is-no-step-of-salt")
    _ask(extended, place)
    extended.supervise()
    assert extended.phases() == [
        *("requested", "checking", "staging", "waiting", "installing"),
        *("delivering", "stepping", "restarting", "watching", "committed"),
    ]
    assert wheels.there(place) == wheels.files("1.2")
    assert extended.packages.versions == OLD
    assert extended.restarts() == ["restart"]
    assert extended.last.progress.steps == ()
    assert extended.store.fact(PREVIOUS).update == "u0", "the way back of Salt stays"
    assert staged.staged() != {}, "what is staged of Salt stays"
    extended.assert_at_peace()


@pytest.mark.parametrize("why", ["silent", "not loadable"])
def test_what_cannot_come_up_again_is_put_back(extended, place, why):
    before = wheels.there(place)
    extended.loads = why != "not loadable"

    def report():
        if extended.extension.installed([NAME]) == {NAME: "1.1"}:
            extended.report()

    extended.services.report = report
    _ask(extended, place)
    extended.supervise()
    assert extended.last.phase is Phase.ROLLED_BACK
    assert wheels.there(place) == before
    rows = [(row.package, row.version) for row in extended.store.quarantined()]
    assert rows == [(NAME, "1.2")]
    assert extended.packages.versions == OLD
    extended.assert_at_peace()


@pytest.mark.parametrize("kill_at", range(1, 13))
@pytest.mark.parametrize("healthy", [True, False], ids=["healthy", "silent"])
def test_killed_at_any_write_of_the_record_then_recovered(extended, place, kill_at, healthy):
    old, new = wheels.there(place), wheels.files("1.2")

    def report():
        if healthy or extended.extension.installed([NAME]) == {NAME: "1.1"}:
            extended.report()

    extended.services.report = report
    _ask(extended, place)
    extended.kill_then_recover(kill_at, "after")
    assert extended.last.phase is (Phase.COMMITTED if healthy else Phase.ROLLED_BACK)
    assert wheels.there(place) == (new if healthy else old)
