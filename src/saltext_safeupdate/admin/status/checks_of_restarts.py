"""Problems with the restarts of this minion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from ...core.errors import SafeUpdateError
from ...core.generations.table import MOST, Generations
from ...core.host import files, processes
from ...core.jobs import guard_file
from ...minion import handing_over
from ...this_host import Host, is_salt_call
from .checks_of_files import Problem

# Seconds after its start from which an earlier minion that still has jobs is reported.
_OLD = 86400.0
# Where Pacemaker keeps what its cluster runs, and how many seconds it gives a stop by itself.
_CIB = "/var/lib/pacemaker/cib/cib.xml"
_OF_PACEMAKER = 20.0
_CLASSES = ("systemd", "service", "lsb")
_SPAN = re.compile(r"(\d+)\s*(ms|s|sec|m|min|h|hr)?", re.ASCII)
_UNITS = {"ms": 0.001, "m": 60, "min": 60, "h": 3600, "hr": 3600}


def stop_guard(host: Host) -> Iterator[Problem]:
    """Look whether a stop waits for jobs."""
    if host.stop_guard is not None:
        for problem, fix in host.stop_guard.problems():
            yield Problem("stop-guard", problem, fix)


def cluster(host: Host) -> Iterator[Problem]:
    """Look whether Pacemaker stops the minion, and gives a stop less time than our guard does."""
    if host.stop_guard is None:
        return
    try:
        fd = files.open_regular(_CIB)
        if fd is None:
            return
        with open(fd, "rb") as file:
            # It belongs to the user of the cluster; expat bounds what entities grow to.
            found = ElementTree.parse(file).getroot()  # noqa: S314
    except (OSError, ElementTree.ParseError):
        # There is no cluster, or not here.
        return
    unit, wanted = host.settings.service.removesuffix(".service"), host.settings.stop_timeout
    usual = found.find("configuration/op_defaults//nvpair[@name='timeout']")
    usually = None if usual is None else usual.get("value")
    for one in found.iterfind("configuration/resources//primitive"):
        named = one.get("type", "").removesuffix(".service")
        if named != unit or one.get("class") not in _CLASSES:
            continue
        stop = one.find("operations/op[@name='stop']")
        given = _seconds((None if stop is None else stop.get("timeout")) or usually)
        if given is not None and given < wanted:
            name = one.get("id", "")
            yield Problem(
                "cluster",
                f"Pacemaker's resource {name} gives a stop of {unit} {given:g} s, and then fences "
                f"the host or gives the resource up; a stop waits for jobs up to {wanted:.0f} s.",
                f"Set the timeout of that resource's 'stop' to more than {wanted:.0f} s, or "
                "'safeupdate:stop_timeout' to less than it, and apply 'safeupdate.enabled'.",
            )


def _seconds(span: str | None) -> float | None:
    """Return the seconds of a time span of Pacemaker; None if it has another form."""
    if span is None:
        return _OF_PACEMAKER
    match = _SPAN.fullmatch(span.strip())
    return float(match[1]) * _UNITS.get(match[2], 1) if match else None


def leaving(host: Host) -> Iterator[Problem]:
    """Look whether it is an earlier minion that does this job, and the next one is on its way."""
    if is_salt_call(host.opts):
        return
    try:
        generations = Generations(host.store)
        earlier = {*generations.overlapping(), *generations.leaving()}
        ours = earlier.intersection(map(processes.identity, processes.ancestors()))
        leaves = ours and host.services.state(host.settings.service).running
    except SafeUpdateError:
        # That is a problem of its own.
        return
    if leaves:
        yield Problem(
            "leaving",
            "The minion that has answered is leaving: it was restarted, and takes jobs only until "
            "the next one is ready. So this is not about the next one.",
            "Run 'safeupdate.check' again in some seconds: the next one answers then. During an "
            "update it does as soon as it has proven healthy.",
        )


def handover(host: Host) -> Iterator[Problem]:
    """Look whether a restart hands the minion over, and whether the last one has."""
    unit = host.settings.service
    try:
        alone = Generations(host.store).overlapping() and not host.services.state(unit).running
    except SafeUpdateError:
        # That is a problem of its own.
        alone = False
    if alone:
        yield Problem(
            "not-taken-over",
            f"{unit} did not come up, and the minion before it continues to serve, without its "
            "engines and its beacons.",
            f"'journalctl -u {unit}' says why. Then start it; to end the earlier one as well, run "
            f"{_ending(unit)}.",
        )
    yield from _earlier(host)
    yield from _waiting(host)


def _waiting(host: Host) -> Iterator[Problem]:
    """Look for what somebody can change, and what has a restart wait for jobs until then."""
    guard = host.stop_guard
    if guard is None or host.settings.restart != "handover" or guard.differing():
        # Nobody can change that, or wants to; or it is a problem of its own.
        return
    why_not = handing_over.obstacle(host)
    if why_not and guard_file.has_one_hierarchy():
        yield Problem(
            "restart-waits",
            f"A restart by others waits for jobs, and jobs for the restart: {why_not}.",
            "Change that and restart the minion. If it has to stay so, set 'safeupdate:restart' to "
            "'wait' and apply 'safeupdate.enabled'.",
        )


def _earlier(host: Host) -> Iterator[Problem]:
    """Look for minions before this one that stay, as they still have jobs."""
    try:
        earlier = Generations(host.store).with_jobs()
    except SafeUpdateError:
        return
    ages = [processes.age(processes.pid(each)) or 0.0 for each in earlier]
    if not ages or (len(ages) < MOST and max(ages) < _OLD):
        return
    waits = " No more may stay: the next restart waits for jobs." * (len(ages) >= MOST)
    yield Problem(
        "earlier-minions",
        f"Earlier minions still have jobs: {len(ages)}. The oldest was started "
        f"{max(ages) / 3600:.1f} h ago.{waits}",
        "'safeupdate.jobs' shows the jobs, and 'saltutil.kill_job <JID>' ends one. To end these "
        f"minions with their jobs, run {_ending(host.settings.service)}.",
    )


def _ending(unit: str) -> str:
    """Return what ends the earlier minions of a unit, as the stop guard has named their scopes."""
    return f"'systemctl stop \"{unit.removesuffix('.service')}-before-*.scope\"'"
