"""Call the core without Salt: ``drive.py METHOD JSON`` prints what came of it as JSON."""

import json
import logging
import sys

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.transactional.cli import Options
from saltext_safeupdate.core.transactional.outcome import Limits
from saltext_safeupdate.core.transactional.status import status
from saltext_safeupdate.core.transactional.tool import Tool


def answer(method, given):
    """Print what the call gave, or its error."""
    logging.disable(logging.CRITICAL)
    try:
        print(json.dumps(main(method, given)))
    except SafeUpdateError as err:
        print(json.dumps({"error": type(err).__name__, "message": str(err)}))


def main(method, given):
    tool = Tool()
    names = ("timeout", "lock_timeout")
    limits = Limits(**{name: given.pop(name) for name in names if name in given})
    if method == "status":
        return status(tool)
    if method == "rollback":
        outcome = tool.rollback(given.get("snapshot"), limits)
    elif method == "run":
        command = given.pop("command")
        outcome = tool.run_command(command, Options(quiet=True, **given), limits)
    else:
        outcome = tool.invoke(given.pop("words"), Options(**given), limits)
    return {
        **outcome.report(),
        "failure": outcome.failure,
        "undone": outcome.undone,
        "etc_leaked": outcome.etc_leaked,
        "effect": outcome.effect,
        "live": outcome.live,
        "stdout": outcome.result.stdout,
        "stderr": outcome.result.stderr,
        "returncode": outcome.result.returncode,
    }


if __name__ == "__main__":
    answer(sys.argv[1], json.loads(sys.argv[2]))
