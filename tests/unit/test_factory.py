"""The objects that act, as they are built from the opts."""

import os

from saltext_safeupdate import factory
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.factory import Factory
from tests.support.factory import VERSIONS
from tests.support.factory import opts as make_opts
from tests.support.simulated import FakePackages, FakeServices


def test_the_real_factory_builds_everything_from_the_opts(tmp_path, monkeypatch):
    opts = make_opts(tmp_path)
    monkeypatch.setattr(factory.wiring, "package_manager", lambda: FakePackages(**VERSIONS))
    monkeypatch.setattr(factory.init_system, "detect", FakeServices)
    real = Factory(opts)
    assert real.settings.state_dir == opts["safeupdate"]["state_dir"]
    assert real.store.path == real.ledger.path == real.settings.database
    assert real.own() == Own(frozenset(VERSIONS), False)
    assert all(os.path.isabs(root) for root in real.roots())
    by = real.transaction(print, "5").by
    assert by.installation.own == ("salt", "salt-minion")
    assert by.jobs.processes() == {}
