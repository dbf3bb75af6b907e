"""What a minion uses, as its own loaders and its own states tell."""

import pytest

from saltext_safeupdate.admin.status import facts
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.prepare.removed_modules import Use
from saltext_safeupdate.ordering import state_functions

TOP = {"base": {"*": ["site"]}}
SITE = """
note:
  cmd.run:
    - name: "true"
    - onlyif:
      - fun: file.file_exists
        path: /
call:
  module.run:
    - name: test.ping
tool:
  pkg.installed
"""


def test_the_highstate_tells_what_it_uses_by_the_file_of_the_core(minion):
    minion.sls("top", TOP)
    minion.sls("site", SITE)
    assert facts.state_uses(minion.opts, minion.functions) == {
        Use("states", "cmd.run", "cmd"),
        Use("states", "module.run", "module"),
        Use("states", "pkg.installed", "pkg"),
        Use("modules", "file.file_exists", "file"),
        Use("modules", "test.ping", "test"),
    }


def test_what_somebody_else_provides_or_nobody_is_not_the_cores(minion):
    states = state_functions.load(minion.opts, minion.functions)
    uses = {
        Use("modules", "cmd.run"),
        Use("modules", "pkg.install"),  # from the directory of the test's own modules
        Use("modules", "nothing.like_that"),
        Use("states", "safeupdate.restarted"),
        Use("states", "nothing.present"),
    }
    assert facts.of_core(uses, minion.functions, states) == {Use("modules", "cmd.run", "cmdmod")}


def test_states_that_cannot_be_rendered_are_an_error(minion):
    minion.sls("top", TOP)
    with pytest.raises(SafeUpdateError, match="cannot be rendered"):
        facts.state_uses(minion.opts, minion.functions)
