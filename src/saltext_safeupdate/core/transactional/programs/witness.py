"""
Run a command and write down its exit status: ``witness.py FILE COMMAND...``.

transactional-update before 5.5 returns 0 whatever its command returned. A command that
is killed by a signal leaves the negative number of it; one that cannot be started, 127.
"""

import os
import sys


def main(argv: list[str]) -> int:
    """Run ``argv[2:]`` and write its exit status into ``argv[1]``."""
    try:
        status = os.spawnvp(os.P_WAIT, argv[2], argv[2:])  # noqa: S606 (runs without the package)
    except OSError:
        status = 127
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(argv[1], flags, 0o600), "w", encoding="ascii") as sink:
        sink.write(f"{status}\n")
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv))
