"""The tool's command lines: how they are built, and which version understands what."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError, SafeUpdateError
from ..host.command import Run
from .detect import TOOL

VERSION = (TOOL, "--version")
# Seconds that ``--version`` gets: it needs neither lock nor root.
_VERSION_TIMEOUT = 60.0

# From here on a failed command discards its snapshot, and the exit status is its own.
DISCARDS_SINCE = (5, 5)
KEEP_SINCE = (5, 1)
SOFT_REBOOT_SINCE = (4, 6)


@dataclass(frozen=True)
class Subcommand:
    """
    A subcommand: since which version, without which ones, whether it opens a snapshot.

    The command lines are those that Salt 3006 and 3007 sent.
    """

    since: tuple[int, ...] = (0,)
    gone: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    opens: bool = True

    def check(self, name: str, version: tuple[int, ...]) -> None:
        """Raise InputError if *version* does not have it."""
        if version < self.since:
            raise InputError(
                f"transactional-update {dotted(version)} has no '{name}': it came with "
                f"{dotted(self.since)}. Nothing was changed; update the tool first"
            )
        if self.gone and self.gone[0] <= version < self.gone[1]:
            raise InputError(
                f"transactional-update {dotted(version)} has no '{name}': it was taken out "
                f"in {dotted(self.gone[0])} and came back with {dotted(self.gone[1])}. "
                "Nothing was changed; update the tool first"
            )


SUBCOMMANDS = {
    "cleanup": Subcommand(opens=False),
    "cleanup-snapshots": Subcommand(since=(2, 26), opens=False),
    "cleanup-overlays": Subcommand(since=(2, 26), opens=False),
    "grub.cfg": Subcommand(),
    "bootloader": Subcommand(),
    "initrd": Subcommand(),
    "kdump": Subcommand(gone=((6, 0, 4), (6, 1))),
    "run": Subcommand(since=(2, 23)),
    "reboot": Subcommand(opens=False),
    "dup": Subcommand(),
    "up": Subcommand(),
    "patch": Subcommand(),
    "migration": Subcommand(),
    "pkg": Subcommand(),
    "rollback": Subcommand(opens=False),
    "apply": Subcommand(since=(4, 2), opens=False),
    "setup-selinux": Subcommand(since=(2, 28)),
    "setup-kdump": Subcommand(since=(4, 1)),
    "setup-fips": Subcommand(since=(4, 4)),
    "register": Subcommand(since=(4, 1)),
}


def dotted(version: tuple[int, ...]) -> str:
    """Return a version as people write it."""
    return ".".join(str(part) for part in version)


def parse_version(text: str) -> tuple[int, ...]:
    """Return the version in what ``--version`` prints."""
    found = re.search(r"\b(\d+(?:\.\d+)+)\b", text)
    if not found:
        raise SafeUpdateError(
            f"transactional-update says no version ({text.strip()[:200]!r}), so what it can do "
            "is not known; nothing was changed"
        )
    return tuple(int(part) for part in found[1].split("."))


def tool_version(run: Run) -> tuple[int, ...]:
    """Ask the tool for its version."""
    return parse_version(run(VERSION, timeout=_VERSION_TIMEOUT).stdout)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The general options of a call, as users of the module give them."""

    snapshot: str | int | None = None
    self_update: bool = False
    drop_if_no_change: bool = True
    keep: bool = False
    quiet: bool = False


def split_words(value: str | Sequence[object] | None, what: str) -> list[str]:
    """Return words: a string is split with the shell's rules, a list is taken as it is."""
    if value is None:
        return []
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as err:
            raise InputError(
                f"{what} cannot be split into words: {err}. Nothing was changed; "
                "close the quotes, or give a list"
            ) from err
    if not isinstance(value, (list, tuple)):
        raise InputError(f"{what} has to be a string or a list; nothing was changed")
    words = [str(word) for word in value]
    if any("\0" in word for word in words):
        raise InputError(f"{what} holds a NUL character; nothing was changed")
    return words


def general_options(options: Options, version: tuple[int, ...]) -> list[str]:
    """Return the options that stand before the subcommand, in their customary order."""
    words = ["--non-interactive"]
    if options.drop_if_no_change:
        words.append("--drop-if-no-change")
    if not options.self_update:
        words.append("--no-selfupdate")
    words += _continue(options.snapshot)
    if options.keep:
        if version < KEEP_SINCE:
            raise InputError(
                f"transactional-update {dotted(version)} cannot keep a failed snapshot: "
                f"'keep' came with {dotted(KEEP_SINCE)}. Nothing was changed"
            )
        words.append("--keep")
    if options.quiet:
        words.append("--quiet")
    return words


def _continue(snapshot: str | int | None) -> list[str]:
    if snapshot is None or snapshot == "":
        return []
    if snapshot == "continue":
        return ["--continue"]
    return ["--continue", str(snapshot_number(snapshot, "'continue'"))]


def snapshot_number(snapshot: str | int, other: str) -> int:
    """Return *snapshot* as a number of 1 or more, or raise InputError."""
    if isinstance(snapshot, bool) or not re.fullmatch(r"[1-9][0-9]{0,8}", str(snapshot)):
        raise InputError(
            f"snapshot has to be a number or {other}, not {str(snapshot)[:100]!r}; "
            "nothing was changed"
        )
    return int(snapshot)


def build(
    words: Sequence[str], options: Options | None, version: tuple[int, ...]
) -> tuple[str, ...]:
    """
    Return the argument list for the subcommand and arguments *words*.

    A list without a subcommand would start a distribution upgrade, so that cannot be built.
    """
    name = words[0] if words else ""
    if name not in SUBCOMMANDS:
        raise InputError(f"unknown subcommand {name!r}; nothing was changed")
    SUBCOMMANDS[name].check(name, version)
    general = [] if options is None else general_options(options, version)
    return (TOOL, *general, *words)


def package_words(
    verb: str,
    pkg: str | None,
    pkgs: str | Sequence[object] | None,
    args: str | Sequence[object] | None,
) -> list[str]:
    """Return ``pkg VERB ARGS PACKAGES``."""
    names = ([pkg] if pkg else []) + split_words(pkgs, "pkgs")
    if not names:
        raise InputError("neither pkg nor pkgs names a package; nothing was changed")
    for name in names:
        if not isinstance(name, str) or name.startswith("-") or "\0" in name:
            raise InputError(
                f"{str(name)[:100]!r} is no package name; nothing was changed. "
                "Options of zypper belong in args"
            )
    return ["pkg", verb, *split_words(args, "args"), *names]


def command_words(command: str | Sequence[object]) -> list[str]:
    """Return ``run COMMAND``."""
    words = split_words(command, "command")
    if not words or not words[0]:
        raise InputError("command is empty; nothing was changed")
    return ["run", *words]


def rollback_words(snapshot: str | int | None) -> list[str]:
    """Return ``rollback [N|last]``."""
    if snapshot is None or snapshot == "":
        return ["rollback"]
    if snapshot == "last":
        return ["rollback", "last"]
    return ["rollback", str(snapshot_number(snapshot, "'last'"))]
