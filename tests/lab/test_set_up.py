"""A minion is set up and taken off again: the whole host before and after."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import Lab
from tests.lab.scene import Scene, state
from tests.lab.series import series

# What systemd, Salt and apt write by themselves. Nothing of ours is below these.
_NOT_OURS = (
    *("/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/var/log", "/var/cache/salt", "/root/.cache"),
    *("/run/log", "/run/systemd/units", "/run/systemd/journal", "/run/systemd/propagate"),
    *("/run/salt", "/run/lock", "/var/lib/systemd", "/run/systemd/inaccessible", "/srv/repo"),
    "/run/systemd/transient",
)
_LIST = """
import hashlib, os, stat, sys
for folder, below, names in os.walk("/"):
    at = [os.path.join(folder, name) for name in below]
    below[:] = [os.path.basename(each) for each in at if each not in sys.argv[1:]
                and not os.path.basename(each) == "__pycache__"]
    for name in sorted((*below, *names)):
        path = os.path.join(folder, name)
        try:
            seen = os.lstat(path)
            content = "-"
            if stat.S_ISREG(seen.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.sha256(file.read()).hexdigest()
        except OSError:
            continue
        if name.endswith(".pid"):
            content = "-"
        print(path, oct(seen.st_mode), seen.st_uid, seen.st_gid, content)
"""


class Host(Scene):
    """A minion that has the extension and is not set up."""

    def files(self) -> set[str]:
        argv = ["python3", "-c", _LIST, *_NOT_OURS]
        return set(self.container.run(argv).stdout.splitlines())

    def units(self) -> set[str]:
        shown = self.container.run(["systemctl", "list-unit-files", "--no-legend", "*salt*"])
        cat = self.container.run(["systemctl", "cat", "salt-minion"])
        return {*shown.stdout.splitlines(), *cat.stdout.splitlines()}

    def restarted(self, before: str) -> None:
        self.master.wait(lambda: self.pid() not in ("0", before), 120, "a new minion")
        self.answers()


@pytest.mark.parametrize("version", series("3006.28"))
def test_what_is_set_up_is_taken_off_and_no_difference_is_left(
    lab: Lab, site: Path, version: str, begin: Callable[[Any], Any]
) -> None:
    # The package brings the SLS along.
    assert (site / "saltext_safeupdate" / "file_roots" / "safeupdate" / "init.sls").is_file()
    host = begin(Host(lab, site, version, set_up=False)).up()
    before = host.files(), host.units()
    pid = host.pid()
    settings = {"stable_interval": 2, "restart_jitter": 1}
    made = host.call("state.single", "safeupdate.enabled", name="x", settings=settings)
    assert state(made, "x")["result"] is True, made
    host.restarted(pid)
    assert host.wait_end()["phase"] == "committed"
    assert host.call("safeupdate.check") == []
    grown = host.files() - before[0]
    assert host.units() != before[1]
    assert len(grown) > 10
    _owned_by_a_run(host)
    pid = host.pid()
    gone = host.call("state.single", "safeupdate.disabled", name="x")
    assert state(gone, "x")["result"] is True, gone
    host.restarted(pid)
    host.master.wait(lambda: not host.container.exists("/var/lib/salt-safeupdate"), 60, "the end")
    host.master.wait(lambda: not host.container.exists("/run/salt-safeupdate"), 60, "the end")
    assert host.call("safeupdate.status")["phase"] == "idle"
    after = host.files(), host.units()
    assert sorted(after[0] ^ before[0]) == []
    assert after[1] == before[1]
    print(f"{len(before[0])} files compared; {len(grown)} had come and are gone")


def _owned_by_a_run(host: Host) -> None:
    """A run that owns 'minion.d' leaves ours there, or it is said; then it is put back at once."""
    place = host.master.files / "minion.d"
    place.mkdir()
    (place / "lab.conf").write_text(host.container.read("/etc/salt/minion.d/lab.conf"))
    owned = {"source": "salt://minion.d", "clean": True}
    call = functools.partial(host.call, "state.single", "file.recurse", "/etc/salt/minion.d")
    pid, ours = host.pid(), "/etc/salt/minion.d/_safeupdate.conf"
    assert state(call(exclude_pat="_*", **owned), "/etc/salt/minion.d")["result"] is True
    assert host.container.exists(ours)
    assert host.call("safeupdate.check") == []
    assert state(call(**owned), "/etc/salt/minion.d")["changes"]
    tag = f"salt/minion/{host.name}/safeupdate/set_up_removed"
    host.master.wait(lambda: [e for e in host.master.events if e.tag == tag], 30, "the event")
    assert not host.container.exists(ours)
    assert [each["code"] for each in host.call("safeupdate.check")] == ["set-up-removed"]
    settings = {"stable_interval": 2, "restart_jitter": 1}
    made = host.call("state.single", "safeupdate.enabled", name="x", settings=settings)
    assert state(made, "x")["result"] is True, made
    assert host.call("safeupdate.check") == []
    assert host.pid() == pid


def test_an_update_may_be_asked_for_before_the_set_up_has_restarted_the_minion(
    lab: Lab, site: Path, begin: Callable[[Any], Any]
) -> None:
    """The minion has neither hooks nor an engine then; the restart gives way to the update."""
    offers = ["salt-minion_3007.15", "salt-minion_3008.3"]
    host = begin(Host(lab, site, "3007.15", offers=offers, set_up=False)).up()
    made = host.call("state.single", "safeupdate.enabled", name="x")
    assert state(made, "x")["result"] is True, made
    # It still waits, for its jitter and this job.
    host.call("safeupdate.update", "3008.3")
    assert host.wait_end()["phase"] == "committed"
    assert host.answers() == "3008.3"
    assert host.leftovers() == []
    assert host.call("safeupdate.check") == []
