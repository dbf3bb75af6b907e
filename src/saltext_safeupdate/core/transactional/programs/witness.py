"""
Run a command and write down its exit status: ``witness.py [--answer] FILE COMMAND...``.

transactional-update before 5.5 returns 0 whatever its command returned. If a signal kills the
command, the status is the negative number of the signal; if it cannot be started, 127.

Every version commits the changes of a command that returns 0, and some commands, such as salt-call,
return 0 when they are told to stop. So this returns 0 only if nobody told it to stop, and, with
``--answer``, if there is a file ``answer`` next to FILE at the end.
"""

import os
import signal
import sys

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(argv: list[str]) -> int:
    """Run ``COMMAND`` and write its exit status into ``FILE``."""
    answers = argv[1] == "--answer"
    place, *command = argv[2 if answers else 1 :]
    told: list[int] = []
    before = {signum: signal.getsignal(signum) for signum in STOPS}
    for signum in STOPS:
        if before[signum] is not signal.SIG_IGN:
            signal.signal(signum, lambda number, frame: told.append(number))
    try:
        status = os.spawnvp(os.P_WAIT, command[0], command)  # noqa: S606 (runs without the package)
    except OSError:
        status = 127
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    if status == 0 and told:
        status = -told[0]
    elif status == 0 and answers and not os.path.exists(os.path.dirname(place) + "/answer"):
        status = 1
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(place, flags, 0o600), "w", encoding="ascii") as sink:
        sink.write(f"{status}\n")
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv))
