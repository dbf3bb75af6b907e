"""What a call of the tool did: found by comparison, not by its exit status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import CommandError, InputError
from ..host.command import Result
from .cli import DISCARDS_SINCE, Options
from .closing import Refusal
from .roots import Roots, Subvolume
from .timed import Ended

# Seconds that a call of the tool may take, and that a busy tool is waited for.
DEFAULT_TIMEOUT = 4 * 3600.0
DEFAULT_LOCK_TIMEOUT = 600.0
_LONGEST = 30 * 86400.0
# Characters of what a failed command has printed that an error shows, of each stream.
_SHOWN = 900


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a call may take, and how long a busy tool is waited for, in seconds."""

    timeout: float = DEFAULT_TIMEOUT
    lock_timeout: float = DEFAULT_LOCK_TIMEOUT

    def __post_init__(self) -> None:
        """Raise InputError for anything that is no number of seconds."""
        for name, value, least in (
            ("timeout", self.timeout, 1e-3),
            ("lock_timeout", self.lock_timeout, 0.0),
        ):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not least <= value <= _LONGEST:
                raise InputError(
                    f"{name} has to be a number of seconds up to {_LONGEST:g}, not "
                    f"{str(value)[:100]!r}; nothing was changed"
                )


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of the tool, as it is made."""

    argv: tuple[str, ...]
    version: tuple[int, ...]
    options: Options
    limits: Limits
    opens: bool

    def base(self, before: Roots) -> Subvolume | None:
        """Return the snapshot that the new one starts from; None if it is another one."""
        asked = self.options.snapshot
        if asked in (None, ""):
            return before.running
        default = asked == "continue" or str(asked) == str(before.default.number)
        return before.default if default else None

    @property
    def merges_etc(self) -> bool:
        """Tell whether the tool may write the live /etc at the end."""
        return self.opens and self.options.drop_if_no_change


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The effect of a call, by comparison."""

    call: Call
    result: Result
    before: Roots
    after: Roots
    failure: str | None = None
    # The versions that must not be installed, and so were taken back.
    refusal: Refusal | None = None
    # Whether the tool did not come to its own end.
    cut_short: bool = False
    # The snapshot that a failed command had made the default; it is not any more.
    undone: int | None = None
    # Whether the live /etc differs from before.
    etc_changed: bool = False
    # The snapshot that a failed command left, as it was to be kept.
    kept: int | None = None
    lost_edits: Mapping[str, str] = field(default_factory=dict)
    copies: str | None = None
    # Edits of the live /etc that the tool had undone.
    put_back: Sequence[str] = ()

    @property
    def new_default(self) -> bool:
        """Tell whether another snapshot than before is the default now."""
        return self.after.default != self.before.default

    @property
    def live(self) -> bool:
        """Tell whether what was changed is in effect now: /etc at most, merged back."""
        return self.failure is None and not self.new_default and not self.before.pending

    @property
    def etc_leaked(self) -> bool:
        """Tell whether the tool merged the /etc of a failed call, as it did before 5.5."""
        return (
            self.failure is not None
            and self.etc_changed
            and self.result.returncode == 0
            and self.call.merges_etc
            and self.call.version < DISCARDS_SINCE
            and self.undone is None
            and not self.new_default
        )

    @property
    def grave(self) -> bool:
        """Tell whether it failed in a way that the status of what ran inside does not say."""
        return self.failure is not None and (self.cut_short or self.new_default)

    @property
    def effect(self) -> str:
        """Say what a failed call left in effect."""
        if self.new_default:
            return "it is in effect after the next boot unless you go back"
        if self.etc_leaked:
            return (
                "the snapshot was dropped, but transactional-update before 5.5 copied what had "
                "been changed in /etc to the live system, so that is in effect"
            )
        return "nothing of it is in effect"

    @property
    def lost(self) -> list[str]:
        """Name the edits of the live /etc that were lost, in sentences."""
        said = [f"Live {path} {what}." for path, what in self.lost_edits.items()]
        return said + ([f"Copies of those edits lie in {self.copies}."] if self.copies else [])

    @property
    def printed(self) -> str:
        """The output of the command, and the losses."""
        return with_lines(self.result.stdout, self.lost)

    def check(self) -> Outcome:
        """Raise CommandError if the call failed; otherwise return itself."""
        if self.failure is not None:
            reason = f"{self.failure}; {self.effect}" if self.etc_leaked else self.failure
            raise CommandError(
                self.call.argv,
                " ".join((reason, *self.lost)),
                stdout=self.result.stdout,
                stderr=_both(self.result),
                returncode=self.result.returncode,
            )
        return self

    def report(self) -> dict[str, Any]:
        """Return what happened as plain data."""
        return {
            "running": self.after.running and self.after.running.number,
            "default": self.after.default.number,
            "pending": self.after.pending,
            "new_snapshot": self.after.default.number if self.new_default else None,
            "discarded": self.failure is not None and self.kept is None,
            "kept_snapshot": self.kept,
            "lost_etc_edits": dict(self.lost_edits),
            "etc_copies": self.copies,
            "etc_put_back": list(self.put_back),
        }


def _both(result: Result) -> str:
    """Return what was printed: both streams, of the first one the end."""
    texts = (result.stdout.strip()[-_SHOWN:], result.stderr.strip()[-_SHOWN:])
    return "\n".join(text for text in texts if text)


def with_lines(text: str, lines: Sequence[str]) -> str:
    """Return *text* with more lines below it, if there are any."""
    return "\n".join([*([text.rstrip("\n")] if text.strip() else []), *lines]) if lines else text


def status_words(status: int) -> str:
    """Return an exit status, negative for a signal, in words."""
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def why_cut_short(ended: Ended, timeout: float) -> str | None:
    """Return why the tool did not come to its own end, or ``None``."""
    if ended.timed_out:
        return (
            f"did not end within {timeout:g} s; it was ended, and the lock is free. Nothing of it "
            "is in effect. Raise the timeout if it needs longer"
        )
    if ended.orphaned:
        return (
            "transactional-update was killed while it worked; what it had started was ended. "
            "Nothing of it is in effect; call it again"
        )
    if ended.result is None:
        return ended.error.reason if ended.error else "interrupted"
    if ended.result.returncode < 0:
        return (
            f"transactional-update was {status_words(ended.result.returncode)}. "
            "Nothing of it is in effect; call it again"
        )
    return None


def failure_of(call: Call, result: Result, before: Roots, after: Roots) -> str | None:
    """Return why a call that came to its own end failed, or ``None``."""
    if result.returncode != 0:
        return status_words(result.returncode)
    if not call.opens or after.default != before.default:
        return None
    last = [line for line in result.stderr.splitlines() if line.strip()][-3:]
    if call.options.drop_if_no_change and not any(line.startswith("ERROR: ") for line in last):
        return None  # nothing was changed, so the snapshot was dropped
    return (
        "exit status 0, but there is no new default snapshot: what it did is lost. "
        "The running system is as it was; see /var/log/transactional-update.log"
    )
