"""A copy of this package that a test may remove, wholly or in part, from under a process."""

import json
import logging
import shutil
import sys
from pathlib import Path

import salt.exceptions

import saltext_safeupdate
from tests.support.forked import forked

PACKAGE = "saltext_safeupdate"
# What a process runs first, before Salt: it finds our package in one place, or not at all.
PRELUDE = """
import sys
from importlib.machinery import PathFinder
class Only:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "saltext_safeupdate":
            found = PathFinder.find_spec(name, [{site!r}])
            if found is None:
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
            return found
sys.meta_path.insert(0, Only)
"""


class Removable:
    """The package in a directory of its own."""

    def __init__(self, path):
        self.site = Path(path)
        self.home = self.site / PACKAGE
        self._away = self.site / "away"
        self.site.mkdir()
        self.put_back()

    @property
    def prelude(self):
        return PRELUDE.format(site=str(self.site))

    def remove(self):
        """Take it away at once."""
        self.home.rename(self._away)

    def put_back(self):
        """Have it there, as a whole."""
        shutil.rmtree(self.home, ignore_errors=True)
        if self._away.exists():
            self._away.rename(self.home)
        else:
            source = Path(saltext_safeupdate.__file__).parent
            shutil.copytree(source, self.home, ignore=shutil.ignore_patterns("__pycache__"))

    def use(self):
        """Have this process find the package here only, and forget what it has of it."""
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{PACKAGE}.")]:
            del sys.modules[name]
        exec(self.prelude, {})


def in_a_new_process(package, work):
    """
    Return what *work* gives in a process that finds *package* only, and the warnings of its log.

    An error of Salt's, or of its loader, is given as text.
    """

    def run(hear, say):
        package.use()
        said = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: said.append(record.getMessage())
        logging.getLogger().addHandler(handler)
        try:
            found = work()
        except (salt.exceptions.SaltException, KeyError) as err:
            found = f"{type(err).__name__}: {err}"
        say(json.dumps([found, said]))

    with forked(run) as child:
        heard = child.hear()
        assert child.wait() == 0
    return json.loads(heard)
