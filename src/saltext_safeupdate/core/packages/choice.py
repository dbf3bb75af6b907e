"""Which of the versions on offer a request names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import InputError


def matches(full: str, asked: str) -> bool:
    """
    Tell whether *asked* names the version *full*.

    It may leave out the epoch, and then the packaging's own part as well: ``3008.3``
    names ``1:3008.3-2``, not ``3008.30`` nor ``3008.3+next``.
    """
    epoch, _, rest = full.rpartition(":")
    without_epoch = rest if epoch.isdigit() else full
    upstream = without_epoch.rpartition("-")[0] or without_epoch
    return asked in (full, without_epoch, upstream)


def choose(
    version: str, offers: Mapping[str, Sequence[str]], installed: Mapping[str, str]
) -> dict[str, str]:
    """
    Return the newest version of each package that *version* names.

    A version that is installed needs no offer. Raise InputError if a package has none.
    """
    chosen = {}
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


def on_offer(offers: Mapping[str, Sequence[str]]) -> str:
    """Say which versions there are."""
    return "on offer: " + "; ".join(
        f"{name} {', '.join(versions) or '(none)'}" for name, versions in sorted(offers.items())
    )
