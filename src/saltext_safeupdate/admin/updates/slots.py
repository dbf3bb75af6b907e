"""The slots of this minion: whether there can be any, which one it runs from, what is kept."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ... import factory
from ...core.errors import CommandError, InputError, SafeUpdateError
from ...core.host.command import run as run_command
from ...core.packages.choice import matches
from ...core.packages.request import File
from ...core.prepare.staging import SLOT
from ...core.record.facts import UNSLOTTED, Unslotted
from ...core.slots import private
from ...core.slots.installer import NAME, SlotInstaller, file_of
from ...this_host import Host
from ..status import provenance
from . import builds

# The argument of 'safeupdate.rollback' to leave all slots, and the source in such a record.
WITHOUT = "without_slot"
KEPT = "kept"
# Seconds that a program of Salt gets to tell its version.
_TIMEOUT = 120.0
# Where Salt looks for its configuration unless it is built for another place.
_CONFIG = "/etc/salt"
_VERSION = re.compile(r"\S+ (\d\S*)")


def why_not(host: Host) -> tuple[str, str] | None:
    """Return why this minion cannot run from slots, and what to do; None if it can."""
    if host.activation.by_boot:
        return (
            "This is a transactional system, which has its own way to keep versions: snapshots.",
            "Update packages.",
        )
    user = str(host.opts.get("user") or "root")
    if os.geteuid() != 0 or user != "root":
        return (
            f"The minion runs as {user if user != 'root' else 'another user than root'}, and slots "
            "are made by root alone.",
            "Update packages.",
        )
    try:
        private.check(host.settings.slots_dir)
        factory.slots(host).active(host.settings.unit_name)
        unit = factory.slot_unit(host)
        unit.check()
        another = host.kept_for_another()
        elsewhere = _configured_elsewhere(host, unit.arguments)
    except (OSError, SafeUpdateError) as err:
        return (
            str(err),
            "Correct that, or set 'safeupdate:slots_dir' to a directory that only root can write "
            "to. Then look again with 'safeupdate.plan'.",
        )
    if another:
        return (another, "Then look again with 'safeupdate.plan'.")
    if elsewhere:
        return (
            f"The running Salt has its configuration in {elsewhere} by default; the Salt of a slot "
            f"would use {_CONFIG}.",
            f"Have its unit start it with '-c {elsewhere}'.",
        )
    return None


def _configured_elsewhere(host: Host, arguments: Sequence[str]) -> str:
    """Return the directory of the configuration if another Salt would not find it, or nothing."""
    directory = os.path.dirname(str(host.opts.get("conf_file") or "")) or _CONFIG
    named = any(each.startswith(("-c", "--config-dir")) for each in arguments)
    return "" if named or os.path.realpath(directory) == os.path.realpath(_CONFIG) else directory


def source_of(host: Host, given: object) -> str:
    """
    Return the place of builds that a request means; empty for packages.

    Without an argument, the Salt that the minion runs from decides. Raise InputError if that cannot
    be.
    """
    slot = factory.active_slot(host)
    if given == builds.PACKAGES or (given is None and slot is None and _has_packages(host)):
        if slot is None:
            refuse_elsewhere(host)
            return ""
        raise InputError(
            f"The minion runs from the slot {slot.ident}, which no package changes. Nothing was "
            f"changed; leave it with 'safeupdate.rollback to={WITHOUT}', then update packages."
        )
    place = builds.place(host, given)
    if place or slot is None:
        return place
    raise InputError(
        f"The minion runs from the slot {slot.ident}, and 'safeupdate:slots_source' does not say "
        "where others are. Nothing was changed; set that, or name a 'source' that is allowed."
    )


def refuse_elsewhere(host: Host) -> None:
    """Raise SafeUpdateError if this minion runs from a slot that is not below 'slots_dir'."""
    unit = factory.slot_unit(host)
    if unit.elsewhere:
        unit.check()


def _has_packages(host: Host) -> bool:
    return host.manager is not None and not provenance.not_from_packages(host)


def installer(host: Host) -> SlotInstaller:
    """
    Return what installs slots, and note what this minion runs from without one.

    Raise SafeUpdateError if that is not known.
    """
    found = factory.slot_installer(host)
    if found.active is None:
        program = factory.slot_unit(host).program
    else:
        # Its unit may name another one by now.
        noted = host.store.fact(UNSLOTTED)
        program = factory.slot_unit(host).named or (noted.program if noted is not None else "")
    now = Unslotted(version=_version(program), program=program)
    if not now.version and found.active is None:
        raise SafeUpdateError(
            f"{program} does not say which version of Salt it is, so there would be no way back to "
            f"it. Nothing was changed; look at what '{program} --version' says."
        )
    if host.store.fact(UNSLOTTED) != now:
        host.store.set_fact(UNSLOTTED, now)
        found = factory.slot_installer(host)
    return found


def _version(program: str) -> str:
    """Return what a program of Salt says that it is; empty if it is gone, and a slot runs."""
    try:
        said = run_command((program, "--version"), timeout=_TIMEOUT).stdout if program else ""
    except CommandError:
        return ""
    found = _VERSION.match(said)
    return found[1] if found else ""


def before(host: Host, to: str | None) -> File:
    """
    Return the target of a rollback: the previous slot, the slot of a version, or no slot.

    Raise InputError if it is not there.
    """
    slots, name = factory.slots(host), host.settings.unit_name
    noted, now, previous = host.store.fact(UNSLOTTED), slots.active(name), slots.previous(name)
    without = []
    if noted is not None and noted.version:
        without = [File(NAME, noted.version, noted.program, "")]
    kept = [each for each in slots.slots() if each.ident != now]
    if to == WITHOUT:
        found = without
    elif to is not None:
        found = [file_of(each) for each in kept if builds.names(each.build_version, to)]
        # The master has the version of the package, which contains the version of Salt.
        found += [
            each for each in without if builds.names(each.version, to) or matches(to, each.version)
        ]
    elif previous in (None, now):
        # An update by an earlier version of this extension that went back has left it so.
        found = without
    else:
        found = [file_of(each) for each in kept if each.ident == previous]
    if not found:
        there = [each.version for each in kept]
        there += [f"{each.version} ({WITHOUT})" for each in without]
        raise InputError(
            f"There is no such version to go back to (there: {', '.join(there) or 'none'}). "
            "Nothing was changed; name one with 'to', or ask for another one with "
            "'safeupdate.update'."
        )
    return found[0]


def described(host: Host) -> dict[str, Any]:
    """Return the slots of this host, and what the minion runs from without one; empty if none."""
    slots = factory.slots(host)
    found = slots.slots()
    if not found:
        return {}
    slot = factory.active_slot(host)
    active = "" if slot is None else slot.ident
    previous = slots.previous(host.settings.unit_name) if active else None
    noted = host.store.fact(UNSLOTTED) if host.store.exists() else None
    return {
        "slots": [
            {
                "slot": each.ident,
                "version": each.version,
                "size": each.size,
                "staged": each.staged,
                "active": each.ident == active,
                "previous": each.ident == previous != active,
            }
            for each in found
        ],
        WITHOUT: _shown(noted),
    }


def _shown(noted: Unslotted | None) -> Mapping[str, str]:
    if noted is None:
        return {}
    # Its package may have been updated, or removed, since the minion has left it.
    return {"version": _version(noted.program), "program": noted.program}


def forget(host: Host, ident: object) -> dict[str, str]:
    """Remove a slot that no minion needs."""
    name = str(ident)
    factory.slots(host).forget(name)
    staged = host.store.fact(SLOT)
    if staged is not None and any(os.path.basename(row[2]) == name for row in staged.files):
        host.store.drop_fact(SLOT)
    return {"slot": name, "comment": "The slot was removed."}
