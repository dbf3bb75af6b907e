"""
Everything that speaks against an update, found before anything changes.

Whoever asks gathers the :class:`Facts`; each check looks at one thing and returns what it
finds, and all of them are made, so that an administrator fixes everything at once.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..errors import InputError, SafeUpdateError
from ..extensions.distributions import Extension, Problem
from ..extensions.requires import unfit
from ..packages.manager import PackageManager
from ..packages.request import Action, Request
from .removed_modules import Use, gone, series

# Bytes and files that are left free wherever something is written.
_RESERVE = 32 << 20
_FILES = 20_000
# Seconds by which the clock may be behind the newest index of packages.
_CLOCK_TOLERANCE = 3600.0
_RELEASE = re.compile(r"(?:\d+:)?(\d{4}(?:\.\d+)*)")
_REBOOT = ("/run/reboot-required", "/run/reboot-needed", "/run/systemd/shutdown/scheduled")
# What package managers write with the time of the server it comes from.
_INDEXES = (
    "/var/lib/apt/lists/*Release",
    "/var/cache/dnf/*/repodata/repomd.xml",
    "/var/cache/libdnf5/*/repodata/repomd.xml",
    "/var/cache/yum/*/*/*/repomd.xml",
    "/var/cache/zypp/raw/*/repodata/repomd.xml",
)


class Finding(NamedTuple):
    """One problem: its code, what it is, what to do about it, and whether it stops an update."""

    code: str
    problem: str
    fix: str
    blocking: bool = True


@dataclass(frozen=True, kw_only=True)
class Facts:
    """
    What is asked for, and what is known of this minion.

    *version* is what was asked for (None: the newest) and *targets* the exact versions, where
    those have been chosen already. *running* is the version of Salt that runs, *master* the
    one of its master (None: not known). *writes* maps directories to the bytes that are
    needed there besides what the packages need; *state_dir* and *roots* need those.
    *quarantined* are pairs of a package and a version. *under_way* and *transaction* describe
    another update and a transaction of the system that wait for their end, empty for none.
    *uses* is what the states of this minion use, *called* what was called otherwise.
    *extensions_policy* is ``stop`` or ``report``. *python* is the Python minor version of the
    target, where it is known, and *unstaged* what could not be staged for it.
    """

    manager: PackageManager
    own: Sequence[str]
    running: str
    state_dir: str
    roots: Sequence[str] = ()
    version: str | None = None
    targets: Mapping[str, str] | None = None
    master: str | None = None
    masterless: bool = False
    writes: Mapping[str, int] | None = None
    quarantined: Collection[tuple[str, str]] = ()
    under_way: str = ""
    transaction: str = ""
    uses: Collection[Use] = ()
    called: Collection[Use] = ()
    extensions: Sequence[Extension] = ()
    extensions_policy: str = "stop"
    python: int | None = None
    unstaged: Sequence[Problem] = ()


@dataclass(frozen=True)
class Host:
    """What the checks look at by themselves."""

    statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    device: Callable[[str], int] = lambda path: os.stat(path).st_dev
    exists: Callable[[str], bool] = os.path.exists
    clock: Callable[[], float] = time.time
    indexes: Sequence[str] = _INDEXES
    reboot: Sequence[str] = _REBOOT


def preflight(facts: Facts, host: Host | None = None) -> list[Finding]:
    """Return all that speaks against the update; nothing found is an empty list."""
    host = host or Host()
    found = []
    if facts.targets is None:
        try:
            facts = replace(facts, targets=facts.manager.targets(facts.own, facts.version))
        except SafeUpdateError as err:
            found.append(unavailable(err))
    for code, check in CHECKS.items():
        try:
            found += check(facts, host)
        except (SafeUpdateError, OSError) as err:
            found.append(
                Finding(
                    code,
                    f"This could not be checked: {err}",
                    "Fix that, and look again.",
                    blocking=False,
                )
            )
    return found


def as_findings(problems: Iterable[Problem], policy: str) -> list[Finding]:
    """Return what is wrong with extensions as findings; the policy says whether it stops."""
    stops = policy != "report"
    hint = " Or set 'safeupdate:extensions' to 'report' to go without." if stops else ""
    return [
        Finding("extension-not-loadable", each.reason, each.fix + hint, stops) for each in problems
    ]


def unavailable(err: Exception) -> Finding:
    fix = "Ask for a version that is on offer, or set up the repository that has it."
    if not isinstance(err, InputError):
        fix = "Fix what the package manager complains about."
    return Finding("target-unavailable", str(err), fix)


# -- checks ----------------------------------------------------------------------------


def _target(facts: Facts, host: Host) -> Iterator[Finding]:
    """The package manager would do it, and to nobody else's cost."""
    if not facts.targets:
        return
    request = Request(action=Action.INSTALL, targets=tuple(sorted(facts.targets.items())))
    try:
        changes = facts.manager.simulate(request)
    except SafeUpdateError as err:
        yield unavailable(err)
        return
    removed = sorted(name for name, change in changes.items() if not change.new)
    if removed:
        yield Finding(
            "removes-packages",
            f"The package manager would remove {', '.join(removed)}.",
            "Update what needs the old version first, or remove it yourself.",
        )


def _disk_space(facts: Facts, host: Host) -> Iterator[Finding]:
    packages = facts.manager.needs(facts.targets) if facts.targets else 0
    needed: dict[str, int] = dict(facts.writes or {})
    for directory in (facts.state_dir, *facts.roots):
        needed[directory] = needed.get(directory, 0) + packages
    systems: dict[int, dict[str, int]] = {}
    for directory, size in needed.items():
        systems.setdefault(host.device(_there(directory, host)), {})[directory] = size
    for places in systems.values():
        wanted, names = sum(places.values()) + _RESERVE, ", ".join(sorted(places))
        system = host.statvfs(_there(min(places), host))
        free = system.f_bavail * system.f_frsize
        if system.f_flag & os.ST_RDONLY:
            yield Finding(
                "read-only",
                f"The file system of {names} is mounted read-only.",
                "Mount it for writing; on a transactional system, update in a transaction.",
            )
        elif free < wanted:
            yield Finding(
                "disk-space",
                f"The file system of {names} has {_mib(free)} free; the update needs "
                f"{_mib(wanted)} there.",
                f"Free at least {_mib(wanted - free)}.",
            )
        elif system.f_files and system.f_favail < _FILES:
            yield Finding(
                "disk-space",
                f"The file system of {names} has room for {system.f_favail} files only; the "
                f"update needs {_FILES}.",
                "Remove files that are not needed.",
            )


def _signatures(facts: Facts, host: Host) -> Iterator[Finding]:
    policy = facts.manager.signature_policy()
    if policy is not None:
        yield Finding(
            "signature-policy",
            policy,
            "Have the package manager verify signatures of that repository.",
            blocking=False,
        )


def _master(facts: Facts, host: Host) -> Iterator[Finding]:
    target = _salt(facts)
    if facts.masterless or target is None:
        return
    if facts.master is None:
        yield Finding(
            "master-version-unknown",
            "The master has not told its version, so it may be older than the target.",
            "Apply the SLS 'safeupdate.master' on the master, or set 'pillar_opts: True' there; or "
            "see for yourself that it is not older.",
            blocking=False,
        )
        return
    here, there = _release(facts.master), _release(target)
    if here < there:
        yield Finding(
            "master-older",
            f"The master has Salt {facts.master}; the target is {target}. A minion must not be "
            "newer than its master.",
            "Update the master first.",
            # Within a series they understand each other.
            blocking=here[:1] != there[:1],
        )


def _busy(facts: Facts, host: Host) -> Iterator[Finding]:
    if facts.manager.busy():
        yield Finding(
            "package-manager-busy",
            "A package manager is at work.",
            "The update waits for its end; end it if it hangs.",
            blocking=False,
        )


def _half_done(facts: Facts, host: Host) -> Iterator[Finding]:
    unfinished = facts.manager.unfinished(facts.own)
    if unfinished:
        yield Finding(
            "half-done",
            f"The package manager left half done: {', '.join(unfinished)}.",
            "The update repairs that; or run the repair yourself, such as 'dpkg --configure -a'.",
            blocking=False,
        )


def _reboot(facts: Facts, host: Host) -> Iterator[Finding]:
    told = [path for path in host.reboot if host.exists(path)]
    if told:
        yield Finding(
            "reboot-pending",
            f"A reboot of the host is wanted or scheduled ({', '.join(told)}).",
            "Reboot first, so that the two do not meet.",
            blocking=False,
        )


def _transaction(facts: Facts, host: Host) -> Iterator[Finding]:
    if facts.transaction:
        yield Finding(
            "transaction-pending",
            facts.transaction,
            "Reboot into it, or discard it, so that nothing of it is lost.",
        )


def _clock(facts: Facts, host: Host) -> Iterator[Finding]:
    files = [path for pattern in host.indexes for path in glob.glob(pattern)]
    newest = max((os.stat(path).st_mtime for path in files), default=0.0)
    now = host.clock()
    if now + _CLOCK_TOLERANCE < newest:
        then = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(newest))
        yield Finding(
            "clock",
            f"The clock says {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(now))}, but the "
            f"index of packages is of {then}: signatures cannot be judged.",
            "Set the clock.",
        )


def _other_update(facts: Facts, host: Host) -> Iterator[Finding]:
    if facts.under_way:
        yield Finding(
            "other-update-running",
            facts.under_way,
            "Wait for its end ('safeupdate.status'), or cancel it.",
        )


def _quarantine(facts: Facts, host: Host) -> Iterator[Finding]:
    bad = sorted(set((facts.targets or {}).items()) & set(facts.quarantined))
    if bad:
        yield Finding(
            "quarantined",
            f"This minion was rolled back from {', '.join(' '.join(each) for each in bad)}.",
            "Find out why ('safeupdate.history'); then clear the quarantine, or ask for another "
            "version.",
        )


def _extensions(facts: Facts, host: Host) -> Iterator[Finding]:
    problems = [*unfit(facts.extensions, facts.python), *facts.unstaged]
    yield from as_findings(problems, facts.extensions_policy)


def _modules(facts: Facts, host: Host) -> Iterator[Finding]:
    target = _salt(facts)
    if target is None:
        return
    stops = facts.extensions_policy != "report"
    for uses, who, blocking in (
        (set(facts.uses), "The states of this minion use", stops),
        (set(facts.called) - set(facts.uses), "This minion was asked for", False),
    ):
        groups: dict[tuple[str, str | None], list[str]] = {}
        for each in gone(uses, facts.running, target):
            groups.setdefault((each.use.kind, each.package), []).append(each.use.function)
        for (kind, package), functions in groups.items():
            yield Finding(
                "module-gone",
                f"{who} {', '.join(functions)} ({kind}), which the core of Salt "
                f"{series(target)} no longer has.",
                f"Install {package} beside Salt ('salt-pip install {package}'): it comes along."
                if package
                else "No package that brings it back is known. Change what uses it.",
                blocking,
            )


# In this order they are told. The code is what is told of a check that cannot be made.
CHECKS: dict[str, Callable[[Facts, Host], Iterator[Finding]]] = {
    "other-update-running": _other_update,
    "target-unavailable": _target,
    "quarantined": _quarantine,
    "master-older": _master,
    "module-gone": _modules,
    "extension-not-loadable": _extensions,
    "disk-space": _disk_space,
    "signature-policy": _signatures,
    "clock": _clock,
    "package-manager-busy": _busy,
    "half-done": _half_done,
    "transaction-pending": _transaction,
    "reboot-pending": _reboot,
}


# -- how -------------------------------------------------------------------------------


def _salt(facts: Facts) -> str | None:
    """Return the version of Salt that the targets mean; None where none looks like one."""
    told = (_RELEASE.match(version) for _, version in sorted((facts.targets or {}).items()))
    return next((found[1] for found in told if found), None)


def _release(version: str) -> tuple[int, ...]:
    found = _RELEASE.match(version)
    return tuple(int(number) for number in found[1].split(".")) if found else ()


def _there(directory: str, host: Host) -> str:
    """Return the directory, or the nearest above it that exists."""
    while not host.exists(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return directory


def _mib(size: int) -> str:
    return f"{max(1, size >> 20)} MiB"
