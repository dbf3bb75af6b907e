"""
Find every reason not to update, before anything changes.

The caller gathers the :class:`Circumstances`. Each check looks at one thing and returns its
findings. All checks are made, so that an administrator can fix everything at once.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..errors import InputError, SafeUpdateError
from ..extensions.distributions import Extension
from ..extensions.requires import unfit
from ..packages.request import Action, Change, Request
from . import holds, space
from .beside import Told
from .removed_modules import Use, gone, series

# Seconds by which the clock may be behind the newest index of packages.
_CLOCK_TOLERANCE = 3600.0
_RELEASE = re.compile(r"(?:\d+:)?(\d{4}(?:\.\d+)*)")
_REBOOT = ("/run/reboot-required", "/run/reboot-needed", "/run/systemd/shutdown/scheduled")
# Files that package managers write with the time of their server.
_INDEXES = (
    "/var/lib/apt/lists/*Release",
    "/var/cache/dnf/*/repodata/repomd.xml",
    "/var/cache/libdnf5/*/repodata/repomd.xml",
    "/var/cache/yum/*/*/*/repomd.xml",
    "/var/cache/zypp/raw/*/repodata/repomd.xml",
)


# The fix if a check could not be made.
LOOK_AGAIN = "Fix that, then look again with 'safeupdate.plan'."


class Finding(NamedTuple):
    """One problem: its code, what it is, how to fix it, and whether it stops an update."""

    code: str
    problem: str
    fix: str
    blocking: bool = True


class Manager(holds.Locks, Protocol):
    """Questions of the checks to a package manager."""

    def simulate(self, request: Request) -> dict[str, Change]: ...
    def needs(self, what: Mapping[str, str]) -> int: ...
    def needs_to_secure(self, packages: Sequence[str]) -> int: ...
    def signature_policy(self) -> str | None: ...
    def busy(self) -> bool: ...
    def unfinished(self, packages: Iterable[str]) -> list[str]: ...


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """
    The request, and the known facts about this minion.

    *targets* are the exact versions that the request means; if it means none, *unavailable* says
    why. *running* is the version of Salt that runs, *master* the version of its master (None:
    unknown). *roots* and *state_dir* are the directories that the packages need space in; *writes*
    maps directories to the bytes that are needed there besides. *quarantined* are pairs of a
    package and a version. *under_way* describes another update, *transaction* a transaction of the
    system that waits for a boot; both are empty for none. *locks* is why the locks cannot be used;
    empty if they can. *uses* is what the states of this minion use. *extensions* are the packages
    that pip installed, *python* is the Python minor version of the target (None: unknown), and
    *extensions_policy* is ``stop`` or ``report``. *minions*, *unaware*, *masters* and *servers* are
    the daemons from the same packages, by :mod:`.beside`; *other_minions_policy* is ``stop`` or
    ``report``. *own_master* tells that the master of this minion is one of these, and comes
    along. *obstacle* is why the minion could not be restarted on this host; empty if it could.
    *no_slots* is why it cannot run from slots, and how to fix that; None if it can, or is not to.
    *too_old* says that this extension does not know the target, as :mod:`.known` does. *marks* are
    files that the scripts of the packages must not find, by :mod:`.marks`. *steps* are places
    of upgrade steps that cannot run. *hold* is why rollouts leave this minion alone, or empty.
    """

    manager: Manager
    own: Sequence[str]
    running: str
    state_dir: str
    roots: Sequence[str] = ()
    targets: Mapping[str, str] = field(default_factory=dict)
    unavailable: SafeUpdateError | None = None
    master: str | None = None
    masterless: bool = False
    writes: Mapping[str, int] | None = None
    quarantined: Collection[tuple[str, str]] = ()
    under_way: str = ""
    transaction: str = ""
    locks: str = ""
    uses: Collection[Use] = ()
    extensions: Sequence[Extension] = ()
    extensions_policy: str = "stop"
    python: int | None = None
    minions: Sequence[Told] = ()
    unaware: Sequence[Told] = ()
    masters: Sequence[Told] = ()
    servers: Sequence[Told] = ()
    own_master: bool = False
    other_minions_policy: str = "stop"
    obstacle: str = ""
    no_slots: Told | None = None
    too_old: Told | None = None
    marks: Sequence[Told] = ()
    steps: Sequence[Told] = ()
    hold: str = ""


@dataclass(frozen=True)
class Surroundings:
    """Facts of this host that the checks look up themselves."""

    statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    device: Callable[[str], int] = lambda path: os.stat(path).st_dev
    exists: Callable[[str], bool] = os.path.exists
    clock: Callable[[], float] = time.time
    indexes: Sequence[str] = _INDEXES
    reboot: Sequence[str] = _REBOOT


Check = Callable[[Circumstances, Surroundings], Iterator[Finding]]


def preflight(circumstances: Circumstances, around: Surroundings | None = None) -> list[Finding]:
    """Return every reason against the update; an empty list if there is no reason."""
    around = around or Surroundings()
    found: list[Finding] = []
    for code, check in CHECKS.items():
        try:
            found += check(circumstances, around)
        except (SafeUpdateError, OSError) as err:
            found.append(
                Finding(
                    code,
                    f"This could not be checked: {err}",
                    LOOK_AGAIN,
                    blocking=False,
                )
            )
    return found


def other_update(under_way: str) -> Finding:
    """Return the finding that an update is under way, which the text describes."""
    return Finding(
        "other-update-running",
        under_way,
        "Wait until it has ended ('safeupdate.status'), or cancel it.",
    )


def _unavailable(err: Exception) -> Finding:
    fix = "Request an available version, or set up the repository that has it."
    if not isinstance(err, InputError):
        fix = "Fix what the package manager, or the source of builds, complains about."
    return Finding("target-unavailable", str(err), fix)


# -- checks ----------------------------------------------------------------------------


def _target(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    """The package manager can do it without removing other packages."""
    if known.unavailable is not None:
        yield _unavailable(known.unavailable)
    if not known.targets:
        return
    request = Request(action=Action.INSTALL, targets=tuple(sorted(known.targets.items())))
    try:
        changes = known.manager.simulate(request)
    except SafeUpdateError as err:
        yield _unavailable(err)
        return
    removed = sorted(name for name, change in changes.items() if not change.new)
    if removed:
        yield Finding(
            "removes-packages",
            f"The package manager would remove {', '.join(removed)}.",
            "First update the packages that need the old version, or remove them yourself.",
        )


def _disk_space(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    packages = known.manager.needs(known.targets) if known.targets else 0
    needed: dict[str, int] = dict(known.writes or {})
    for directory in (known.state_dir, *known.roots):
        needed[directory] = needed.get(directory, 0) + packages
    if known.targets:
        needed[known.state_dir] += known.manager.needs_to_secure(sorted(known.targets))
    found = space.lacking(
        needed, statvfs=around.statvfs, device=around.device, exists=around.exists
    )
    for lack in found:
        yield Finding(*lack)


def _signatures(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    policy = known.manager.signature_policy()
    if policy is not None:
        yield Finding(
            "signature-policy",
            policy,
            "Make the package manager verify signatures of that repository; for builds, set "
            "'safeupdate:slots_keyring'.",
            blocking=False,
        )


def _master(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    target = _salt(known)
    if known.masterless or known.own_master or target is None:
        return
    if known.master is None:
        yield Finding(
            "master-version-unknown",
            "The master does not tell its version, so it may be older than the target.",
            "Run 'salt-run safeupdate.setup' on the master, or let minions call "
            "'safeupdate.master_version' ('peer_run'); or make sure yourself that it is not older.",
            blocking=False,
        )
        return
    here, there = _release(known.master), _release(target)
    if here < there:
        yield Finding(
            "master-older",
            f"The master has Salt {known.master}; the target is {target}. A minion must not be "
            "newer than its master.",
            "Update the master first.",
            # Within a series they understand each other.
            blocking=here[:1] != there[:1],
        )


def _busy(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    if known.manager.busy():
        yield Finding(
            "package-manager-busy",
            "A package manager is running.",
            "The update waits until it has ended; end it if it hangs.",
            blocking=False,
        )


def _half_done(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    unfinished = known.manager.unfinished(known.own)
    if unfinished:
        yield Finding(
            "half-done",
            f"The package manager left these packages half done: {', '.join(unfinished)}.",
            "The update repairs that; or run the repair yourself, such as 'dpkg --configure -a'.",
            blocking=False,
        )


def _reboot(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    told = [path for path in around.reboot if around.exists(path)]
    if told:
        yield Finding(
            "reboot-pending",
            f"A reboot of the host is required or scheduled ({', '.join(told)}).",
            "Reboot first, so that it does not interrupt the update.",
            blocking=False,
        )


def _transaction(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    if known.transaction:
        yield Finding(
            "transaction-pending",
            known.transaction,
            "Reboot into it, or discard it; otherwise it would be lost.",
        )


def _clock(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    files = [path for pattern in around.indexes for path in glob.glob(pattern)]
    newest = max((os.stat(path).st_mtime for path in files), default=0.0)
    now = around.clock()
    if now + _CLOCK_TOLERANCE < newest:
        then = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(newest))
        yield Finding(
            "clock",
            f"The clock says {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(now))}, but the "
            f"index of packages is from {then}: signatures cannot be checked.",
            "Set the clock.",
        )


def _other_update(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    if known.under_way:
        yield other_update(known.under_way)


def _locks(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    if known.locks:
        yield Finding(
            "locks",
            known.locks,
            "Make the user of the minion the owner of the directory 'safeupdate:run_dir', or set "
            "another one that this user can write; then restart the minion.",
        )


def _quarantine(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    for each in holds.by_quarantine(set(known.targets.items()) & set(known.quarantined)):
        yield Finding("quarantined", *each)


def _extensions(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    stops = known.extensions_policy != "report"
    hint = " Or set 'safeupdate:extensions' to 'report' to continue without it." if stops else ""
    for each in unfit(known.extensions, known.python):
        yield Finding("extension-not-loadable", each.reason, each.fix + hint, stops)


def _unaware(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    for problem, fix in known.unaware:
        stops = known.other_minions_policy != "report"
        yield Finding("other-minion-unaware", problem, fix, stops)


def _restart(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    if known.obstacle:
        yield Finding(
            "no-restart",
            f"The minion could not be restarted on the new version: {known.obstacle}.",
            "Give it a service or a keeper, or update the image of the container.",
        )


def _slots(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    if known.no_slots:
        yield Finding("no-slots", *known.no_slots)


def _modules(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
    target = _salt(known)
    if target is None:
        return
    groups: dict[tuple[str, str | None], list[str]] = {}
    for each in gone(known.uses, known.running, target):
        groups.setdefault((each.use.kind, each.package), []).append(each.use.function)
    for (kind, package), functions in groups.items():
        yield Finding(
            "module-gone",
            f"The states of this minion use {', '.join(functions)} ({kind}), which the core of "
            f"Salt {series(target)} no longer has.",
            f"Install {package} ('salt-pip install {package}'): the update carries it over."
            if package
            else "No package that brings it back is known. Change the states that use it.",
            known.extensions_policy != "report",
        )


def _noted(
    code: str, told: Callable[[Circumstances], Sequence[Told]], *, blocking: bool = False
) -> Check:
    """Return a check whose findings are told to it."""

    def check(known: Circumstances, around: Surroundings) -> Iterator[Finding]:
        for problem, fix in told(known):
            yield Finding(code, problem, fix, blocking)

    return check


# The checks in the order of their findings. The code is the code of the check that cannot be made.
CHECKS: dict[str, Check] = {
    "other-update-running": _other_update,
    "locks": _locks,
    "target-unavailable": _target,
    "quarantined": _quarantine,
    "held": _noted("held", lambda known: holds.by_settings(known.hold)),
    "version-locked": _noted(
        "version-locked", lambda known: holds.by_locks(known.manager, known.own)
    ),
    "master-older": _master,
    "module-gone": _modules,
    "extension-not-loadable": _extensions,
    "other-minion": _noted("other-minion", lambda known: known.minions),
    "other-minion-unaware": _unaware,
    "master-beside": _noted("master-beside", lambda known: known.masters),
    "server-beside": _noted("server-beside", lambda known: known.servers),
    "extension-too-old": _noted(
        "extension-too-old", lambda known: [known.too_old] if known.too_old else [], blocking=True
    ),
    "foreign-mark": _noted("foreign-mark", lambda known: known.marks, blocking=True),
    "steps-noexec": _noted("steps-noexec", lambda known: known.steps, blocking=True),
    "no-restart": _restart,
    "no-slots": _slots,
    "disk-space": _disk_space,
    "signature-policy": _signatures,
    "clock": _clock,
    "package-manager-busy": _busy,
    "half-done": _half_done,
    "transaction-pending": _transaction,
    "reboot-pending": _reboot,
}


def _salt(known: Circumstances) -> str | None:
    """Return the version of Salt that the targets mean; None if none looks like one."""
    told = (_RELEASE.match(version) for _, version in sorted(known.targets.items()))
    return next((found[1] for found in told if found), None)


def _release(version: str) -> tuple[int, ...]:
    found = _RELEASE.match(version)
    return tuple(int(number) for number in found[1].split(".")) if found else ()
