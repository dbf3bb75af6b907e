"""What a rollout takes for canaries, waves and its limit if nobody says so: by the size of it."""

from __future__ import annotations

from .request import UNAVAILABLE, WAVES, Request
from .share import Share

# A group of fewer minions is small: one canary, and all others after it. Of five hosts, waves of
# one, one and two took three soaks, which was most of their 26 minutes.
SMALL = 10
CANARIES, FEW_CANARIES = 2, 1
_ONE_WAVE = (Share(100, True, 1),)
# As many may be away at once in a fleet of which that is a third at most.
_AT_ONCE, _PART = 2, 3


def canaries(wanted: Request, meant: int) -> int:
    """Return the canaries of a group whose target means so many minions."""
    if wanted.canaries is not None:
        return wanted.canaries
    return FEW_CANARIES if meant < SMALL else CANARIES


def waves(wanted: Request, meant: int) -> tuple[Share, ...]:
    """Return the sizes of the waves of such a group."""
    if wanted.waves is not None:
        return wanted.waves
    return _ONE_WAVE if meant < SMALL else WAVES


def unavailable(wanted: Request, total: int, meant: int) -> int:
    """
    Return how many of *total* minions may be away at once; *meant* are those of all groups.

    Raises InputError if that is none.
    """
    given = wanted.max_unavailable
    if given is not None:
        return given.of(total, "max_unavailable", meant)
    tenth = UNAVAILABLE.of(total, "max_unavailable", meant)
    return max(tenth, min(_AT_ONCE, total // _PART))


def told(wanted: Request, groups: dict[str, int]) -> str:
    """Return what was set by the size of small groups, by name; empty if nothing was."""
    sized = ("canaries", "waves")
    small = {
        name: [each for each in sized if getattr(wanted.of(name), each) is None]
        for name, meant in groups.items()
        if meant < SMALL
    }
    names = [each for each in sized if any(each in set_here for set_here in small.values())]
    small = {name: set_here for name, set_here in small.items() if set_here}
    if not small:
        return ""
    return f"{' and '.join(names)} as for a small group: {', '.join(small)}"
