"""
Many minions of one master on the network of a lab host, as a program: they take what it publishes.

One real minion does some ten jobs a second on a small machine; these do nothing but the protocol.
"""

from __future__ import annotations

import sys
from pathlib import Path

# What the master of a lab host listens on.
MASTER = {"ret_port": 4506, "publish_port": 4505}
RAN, UP = "ran", "all are up"


def main(directory: str, *names: str) -> None:
    """Live in *directory* until standard input ends; ``ran`` there has a line for each job."""
    # Only this program needs Salt; the test reads the names above.
    from tests.support.swarm import Machine, Swarm

    path = Path(directory)
    hosts = [Machine(name) for name in names]
    with Swarm(MASTER, hosts, path, keeps=True, ran_to=path / RAN) as swarm:
        swarm.wait_until_up()
        print(UP, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
