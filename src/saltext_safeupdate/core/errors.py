"""Errors that callers handle differently. Each message says what happened, then what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Exceptions of mistakes of ours. A process that is restarted would end by them again.
MISTAKES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def visible(text: object) -> str:
    """Return a text in which nothing is left that a terminal obeys or hides: it is escaped."""
    told = str(text)
    if told.isprintable():
        return told
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in told
    )


def one_line(text: object) -> str:
    """Return a message as one line of visible characters: parts of it may be others' words."""
    return visible(" ".join(str(text).split()))


def version_text(name: str, given: object) -> str:
    """
    Return the version that a caller has given, as a text, or raise InputError.

    On a command line and in YAML, 3007.10 is the same number as 3007.1: a number with one decimal
    may have lost a zero. A number with more decimals, such as 3007.15, is unambiguous.
    """
    if isinstance(given, float) and re.fullmatch(r"\d+\.\d", str(given)):
        raise InputError(
            f"'{name}' has arrived as the number {given}, and {given}0 would have, too. Nothing "
            f"was done; put it in quotes twice, such as {name}={argument(str(given))}, and once in "
            "YAML."
        )
    text = str(given).strip() if isinstance(given, str | int | float) else ""
    if isinstance(given, bool) or not text:
        raise InputError(
            f"'{name}' must be a version in quotes, such as '3008.3'. Nothing was done."
        )
    return text


def argument(version: str) -> str:
    """Return a version as people have to write it on a command line, so that it stays a text."""
    return f"\"'{version}'\""


class SafeUpdateError(Exception):
    """Base of every error that this extension raises on purpose."""


class CommandError(SafeUpdateError):
    """
    A program could not be run, failed, or did not end in time.

    ``argv`` is the command, ``returncode`` its exit status (``None`` without one), ``stdout``
    and ``stderr`` its output until then.
    """

    def __init__(
        self,
        argv: Sequence[str],
        reason: str,
        *,
        stdout: str = "",
        stderr: str = "",
        returncode: int | None = None,
    ) -> None:
        self.argv = tuple(argv)
        self.reason = reason
        self.stdout = stdout
        self.stderr = stderr
        self.returncode = returncode
        # The message does not show the arguments: they may contain a secret.
        detail = (stderr.strip() or stdout.strip())[-2000:]
        super().__init__(f"{self.argv[0]}: {reason}" + (f": {detail}" if detail else ""))


class RecordError(SafeUpdateError):
    """The database cannot be read or written, or a newer version wrote it."""


class UnreadableError(RecordError):
    """One update or one fact of the record cannot be read; the rest of the database can."""


class DamagedError(SafeUpdateError):
    """The stored data of one job is unreadable; the data of others is not."""


class CacheError(SafeUpdateError):
    """The cache of the master cannot be used at all."""


class TransitionError(SafeUpdateError):
    """The phase of the update does not allow the request."""


class HeldError(SafeUpdateError):
    """An administrator keeps this host as it is: no fault of anybody, and nothing to wait for."""


class LockHeldError(SafeUpdateError):
    """Another process has a lock that is needed here."""


class LockUnavailableError(SafeUpdateError):
    """A lock cannot be used at all, so whether another process has it is not known."""


class VerificationError(SafeUpdateError):
    """A check failed: a signature, a hash, a version, or the health of the minion."""


class InputError(SafeUpdateError):
    """The input is not valid; nothing was changed."""
