"""The defaults of a rollout for canaries, waves and its limit, by its size."""

from __future__ import annotations

from .request import UNAVAILABLE, WAVES, Request
from .share import Share

# A group with fewer minions is small: one canary, and then all others. With five hosts, waves of
# one, one and two took three soaks, which were most of their 26 minutes.
SMALL = 10
CANARIES, FEW_CANARIES = 2, 1
_ONE_WAVE = (Share(100, True, 1),)
# So many may be away at once if that is at most a third of the fleet.
_AT_ONCE, _PART = 2, 3


def canaries(wanted: Request, meant: int) -> int:
    """Return the number of canaries of a group whose target matches so many minions."""
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
    Return how many of *total* minions may be away at once; *meant* are the targeted minions of all

    groups. Raises InputError if the limit is less than one.
    """
    given = wanted.max_unavailable
    if given is not None:
        return given.of(total, "max_unavailable", meant)
    tenth = UNAVAILABLE.of(total, "max_unavailable", meant)
    return max(tenth, min(_AT_ONCE, total // _PART))


def told(wanted: Request, groups: dict[str, int]) -> str:
    """Return the defaults that come from the size of small groups; may be empty."""
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
