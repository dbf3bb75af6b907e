"""A master whose configuration names this extension, while its package is gone, or half there."""

import pytest
import salt.config
import salt.engines
import salt.loader
import salt.version

from tests.support.removable import Removable, in_a_new_process

MATTERS = {
    "there": lambda package: None,
    "gone": lambda package: package.remove(),
    "without the hooks": lambda package: (package.home / "master/hooks.py").unlink(),
    "half a file of the engine": lambda package: (
        package.home / "engines/safeupdate_redeliver.py"
    ).write_text("("),
    "an error of another kind": lambda package: (package.home / "patches.py").write_text(
        "raise OSError(5, 'a disk')"
    ),
}


# It is the loader that differs by series, and tests of minions have it on each.
pytestmark = pytest.mark.skipif(
    not salt.version.__version__.startswith("3008"), reason="on the newest series"
)


class Started:
    """What a master starts its engines in: it only notes them."""

    def __init__(self):
        self.names = []

    def add_process(self, process, args=(), name="", **_):
        self.names.append(args[1])


@pytest.mark.parametrize("matter", MATTERS)
def test_a_master_starts_and_its_other_engines_too(tmp_path, matter):
    """Salt starts its engines before it serves anybody: what fails there, fails the master."""
    package = Removable(tmp_path / "site")
    MATTERS[matter](package)
    opts = {
        **salt.config.DEFAULT_MASTER_OPTS,
        "__role": "master",
        "cachedir": str(tmp_path / "cache"),
        "extension_modules": str(tmp_path / "extmods"),
        "engines": [{"safeupdate_redeliver": {"window": 600}}, {"test": {}}],
        "peer_run": {".+": ["safeupdate.master_version"]},
    }

    def work():
        started = Started()
        salt.engines.start_engines(opts, started)
        return started.names, "jobs.active" in salt.loader.runner(opts)

    (names, runs), _ = in_a_new_process(package, work)
    ours = ["safeupdate_redeliver.start"] if matter == "there" else []
    assert names == [*ours, "test.start"]
    assert runs
