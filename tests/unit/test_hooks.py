"""What happens when the hooks are put into a process."""

import logging

from saltext_safeupdate import hooks
from saltext_safeupdate.minion import intake  # noqa: F401 - Salt runs programs when it is imported
from tests.support.forked import forked


def test_a_configuration_that_is_not_valid_is_logged_once_and_the_hooks_are_there(tmp_path):
    opts = {
        "__role": "minion",
        "engines": [{"safeupdate": {}}],
        "safeupdate": {
            "state_dir": str(tmp_path / "state"),
            "run_dir": str(tmp_path / "run"),
            "nonsense": 1,
        },
    }

    def install(hear, say):
        said = []
        hooks.log.addHandler(handler := logging.Handler())
        handler.emit = lambda record: said.append(record.getMessage())
        hooks.log.setLevel(logging.ERROR)
        assert hooks.install(opts)
        assert hooks.install(opts)
        say(str(len(said)))
        say(said[0])

    # The hooks stay in the process that they are put into.
    with forked(install) as child:
        assert child.hear() == "1"
        said = child.hear()
        assert "'safeupdate:nonsense' does not exist" in said
        assert said.endswith("The default holds until that is corrected.")
        assert child.wait() == 0
