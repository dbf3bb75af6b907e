"""The options of the master's engine, and whether the master's own fit it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..core.errors import InputError
from . import choice as choices
from .choice import Choice

# The engine, as the configuration names it.
ENGINE = "safeupdate_redeliver"
# How a minion says that it has started.
START_TAGS = ("salt/minion/*/start", "minion_start")
# From this version of the protocol on, the channel knows for certain which minion sends.
_AUTH_VERSION = 3


def unfit(opts: Mapping[str, Any]) -> str:
    """Return why the configuration of a master makes redelivery unsafe; empty if it does not."""
    version = opts.get("minimum_auth_version", 0)
    if not isinstance(version, int) or version < _AUTH_VERSION:
        return (
            f"Minions may send under the names of others: 'minimum_auth_version' of the master is "
            f"below {_AUTH_VERSION}. Set it to {_AUTH_VERSION}, or update Salt if it does not "
            "have it."
        )
    if opts.get("open_mode"):
        return (
            "Anybody may send under the names of minions: 'open_mode' of the master is on. Turn it "
            "off, and restart the master."
        )
    if opts.get("cluster_id"):
        return (
            "This master belongs to a cluster ('cluster_id'), whose other masters get returns that "
            "it does not see."
        )
    try:
        choice(opts)
    except InputError as err:
        return f"{err} Correct the options of the engine, and restart the master."
    if opts.get("enable_ssh_minions"):
        return (
            "This master also publishes through salt-ssh ('enable_ssh_minions'), where a job that "
            "is published again would run again."
        )
    return ""


def configured(opts: Mapping[str, Any]) -> bool:
    """Return whether this master has our engine."""
    return any(True for _ in _engines(opts))


def start_tags(opts: Mapping[str, Any]) -> list[str]:
    """Return the patterns of tags that announce a start, according to the engine's options."""
    for options in _engines(opts):
        given = options.get("start_tags")
        if isinstance(given, str):
            return [given]
        if isinstance(given, list | tuple):
            return [tag for tag in given if isinstance(tag, str)]
    return list(START_TAGS)


def choice(opts: Mapping[str, Any]) -> Choice:
    """Return what the engine's options say about jobs. Raises InputError if they are not valid."""
    return choices.of(next(_engines(opts), {}))


def _engines(opts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the options of our engine, as often as it is configured."""
    engines = opts.get("engines") or []
    for engine in [engines] if isinstance(engines, Mapping | str) else engines:
        if engine == ENGINE:
            yield {}
        for name, given in engine.items() if isinstance(engine, Mapping) else ():
            options = given if isinstance(given, Mapping) else {}
            if ENGINE in (name, options.get("engine_module")):
                yield options
