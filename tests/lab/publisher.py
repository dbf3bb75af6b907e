"""
Publishes jobs at a rate until it is told that it is enough; run inside, by a copy of Salt's tree.

Its arguments: a directory, the jobs a second, and the minions in turns. ``DIRECTORY/accepted`` has
a line for each job that the master said it has taken: its JID, its minion, and its mark.
"""

import collections
import os
import sys
import time

import salt.client
import salt.exceptions


def main(directory, rate, *minions):
    client, taken, refused = None, collections.Counter(), 0
    # Process IDs are used again after a boot.
    number, due, begun = 0, time.monotonic(), time.time_ns()
    name = os.path.join(directory, "accepted")
    with open(name, "a", buffering=1) as accepted:
        while not os.path.exists(os.path.join(directory, "enough")):
            time.sleep(max(due - time.monotonic(), 0))
            # What was late is not made up for: nothing is published faster than that.
            due = max(due + 1 / float(rate), time.monotonic())
            minion = minions[number % len(minions)]
            number += 1
            sent = {}
            try:
                client = client or salt.client.LocalClient()
                mark = [f"echo {begun}.{number} >> {directory}/ran"]
                sent = client.pub(minion, "cmd.run", mark, timeout=5)
            except (salt.exceptions.SaltException, OSError):
                pass
            if sent.get("jid"):
                accepted.write(f"{sent['jid']} {minion} {begun}.{number}\n")
                taken[int(time.monotonic())] += 1
            else:
                # A master that has started again has a new key for its users.
                client, refused = None, refused + 1
    seconds = sorted(taken.values())
    print(
        f"{sum(seconds)} jobs taken, {refused} not; in a second in which the master took any: "
        f"{seconds[len(seconds) // 2]} (median), {seconds[-1]} at most"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
