"""The choice of a version on offer for a request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..errors import InputError

_SERIES = re.compile(r"\d{4}", re.ASCII)


def matches(full: str, asked: str) -> bool:
    """
    Return whether *asked* names the version *full*.

    It may leave out the epoch, and then the packaging's own part as well: ``3008.3``
    names ``1:3008.3-2``, not ``3008.30`` nor ``3008.3+next``.
    """
    without_epoch = _without_epoch(full)
    return asked in (full, without_epoch, _upstream(full))


def is_series(asked: str) -> bool:
    """Return whether a request names a series, such as ``3008``, and not one version of it."""
    return bool(_SERIES.fullmatch(asked))


def of_series(full: str, asked: str) -> bool:
    """Return whether the version *full* belongs to the series *asked*."""
    return is_series(asked) and _without_epoch(full).startswith(f"{asked}.")


def _without_epoch(full: str) -> str:
    epoch, _, rest = full.rpartition(":")
    return rest if epoch.isdigit() else full


def _upstream(full: str) -> str:
    without_epoch = _without_epoch(full)
    return without_epoch.rpartition("-")[0] or without_epoch


def choose(
    version: str, offers: Mapping[str, Sequence[str]], installed: Mapping[str, str]
) -> dict[str, str]:
    """
    Return the newest version of each package that *version* names.

    An installed version needs no offer. A series means the newest release that is on offer for all
    packages. Raise InputError if a package has no such version.
    """
    chosen = {}
    if is_series(version):
        version = _newest_release(version, offers) or version
    for name, offered in offers.items():
        known = [*offered, *([installed[name]] if name in installed else [])]
        found = [each for each in known if matches(each, version)]
        if not found:
            raise InputError(
                f"{name} is not on offer in version {version}; {on_offer(offers)}. Nothing was "
                "changed: ask for one of these, or add the repository that has it"
            )
        # It names the installed version, also if a rebuild of that is on offer.
        chosen[name] = installed[name] if installed.get(name) in found else found[0]
    return chosen


def _newest_release(series: str, offers: Mapping[str, Sequence[str]]) -> str:
    """Return the newest release of a series that all packages have; empty without one."""
    for full in next(iter(offers.values()), ()):
        release = _upstream(full)
        if of_series(full, series) and all(
            any(matches(each, release) for each in offered) for offered in offers.values()
        ):
            return release
    return ""


def on_offer(offers: Mapping[str, Sequence[str]]) -> str:
    """Return a text with the versions on offer."""
    return "on offer: " + "; ".join(
        f"{name} {', '.join(versions) or '(none)'}" for name, versions in sorted(offers.items())
    )
