"""
The losses of an update while 50 jobs a second come in, with plain Salt and with the extension.

Boots a container with a real systemd and a real master for each of the two, and updates the
minion by a state run. Needs root. Nothing is asserted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import salt.version
from table import row

from devtools import host, venvs
from devtools.command import ToolError
from devtools.experiment import EXTENSION_CONFIG, MINION, extension_layer, minion_config
from devtools.lab.container import Lab
from devtools.master import Master

RATE = 50
SECONDS = 15
# Seconds without another return, and in all, after which the rest counts as lost.
QUIET, LONGEST = 90.0, 900.0
NEXT = {"3006.28": "3007.15", "3007.15": "3008.3", "3008.3": "3008.3+moved"}
BEGUN, WORK = "/var/tmp/begun", "/var/tmp/work"
SLS = f"""
begin:
  cmd.run:
    - name: touch {BEGUN}
salt-minion:
  pkg.latest:
    - refresh: True
end:
  cmd.run:
    - name: "true"
"""
ENGINES = {"engines": [{"safeupdate_redeliver": {"window": 900}}]}


@dataclass(frozen=True)
class Outcome:
    """The fate of the published jobs."""

    published: int
    seconds: float
    lost: int
    twice: int
    updated: bool
    service: str

    def __str__(self) -> str:
        rate = self.published / self.seconds
        return (
            f"{self.published} jobs at {rate:.0f} a second: {self.lost} lost, {self.twice} ran "
            f"twice; updated: {'yes' if self.updated else 'no'}, the service is {self.service}"
        )


def measure(lab: Lab, old: str, new: str, site: Path | None) -> Outcome:
    layers = [extension_layer(lab, site)] if site else []
    offers = [f"salt-minion_{version}" for version in (old, new)]
    container = lab.container(old, offers=offers, extra_layers=layers)
    config = minion_config(EXTENSION_CONFIG if site else {})
    container.write("/etc/salt/minion.d/lab.conf", config)
    master = Master(container.network, config=ENGINES if site else {}, pythonpath=site)
    (master.files / "update.sls").write_text(SLS)
    try:
        master.start()
        container.up()
        master.wait_minion(MINION, 90)
        master.publish("state.apply", "update", target=MINION, tgt_type="list")
        master.wait(lambda: container.exists(BEGUN), 120, "the update to begin")
        began = time.monotonic()
        jids = _publish(master, began)
        seconds = time.monotonic() - began
        lost = _await(master, jids)
        ran = [line for line in container.read(WORK, "").splitlines() if line]
        updated = container.packages("salt-minion")["salt-minion"] == (new, "install ok installed")
        twice = len(ran) - len(set(ran))
        service = container.service()["ActiveState"]
        return Outcome(len(jids), seconds, lost, twice, updated, service)
    finally:
        master.stop()
        container.down()


def _publish(master: Master, began: float) -> list[str]:
    """Publish at the rate, as far as the machine can."""
    jids = []
    for number in range(RATE * SECONDS):
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        line = f"echo {number} >> {WORK}"
        try:
            jids.append(master.publish("cmd.run", line, target=MINION, tgt_type="list"))
        except ToolError:
            # The master refused it, so it was not published.
            continue
    return jids


def _await(master: Master, jids: list[str]) -> int:
    """Wait until no more returns come in; return how many jobs have none."""
    wanted = {f"salt/job/{jid}/ret/{MINION}": jid for jid in jids}
    began = last = time.monotonic()
    missing = set(wanted)
    while missing and time.monotonic() < min(began + LONGEST, last + QUIET):
        time.sleep(1)
        left = missing - {event.tag for event in list(master.events)}
        if left != missing:
            missing, last = left, time.monotonic()
    # A busy master may leave an event out; its job cache has every return.
    return sum(MINION not in master.returns(wanted[tag]) for tag in missing)


def main() -> None:
    if not host.is_root():
        print("jobs published during an update: not measured, needs root")
        return
    old = str(salt.version.__version__)
    new = NEXT[old]
    with Lab() as lab:
        site = venvs.extension(lab.cache.cache, lab.run_dir.path / "build")
        plain, ours = (measure(lab, old, new, found) for found in (None, site))
    row(f"{old} to {new}, 50 jobs a second for {SECONDS} s", str(plain), str(ours), "", "0 lost")


if __name__ == "__main__":
    main()
