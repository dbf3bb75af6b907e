"""The ``safeupdate:`` mapping of the minion configuration, validated once."""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from .errors import InputError
from .frozen import frozen

# The directory of the configuration of the minion that has the defaults as they are.
_CONFIG_DIR = "/etc/salt"
# The directory of the other minions, and how much of their paths is in their names.
_MINIONS = "minions"
_READABLE = 40
_DIGITS = 8

# The words that a key accepts.
_WORDS = {
    "rollback": ("required", "optional"),
    "extension_restart": ("deferred", "manual"),
    "on_change": ("restart", "tell"),
    "restart": ("handover", "wait"),
    "extensions": ("stop", "report"),
    "other_minions": ("stop", "report"),
    "transactional_reboot": ("manual", "rollback", "always"),
}

# The text for a hold without a reason.
_NO_REASON = "no reason is given"

# How the value of a key begins that may be empty, and what that is.
_PLACES = {
    "extension_source": (
        ("/", "http://", "https://", "salt://"),
        "an absolute path, the URL of an index, or a salt:// path",
    ),
    "slots_source": (
        ("/", "file:///", "salt://"),
        "an absolute path, the salt:// path of a directory, or 'index'",
    ),
    "slots_keyring": (("/",), "an absolute path"),
    "steps_source": (("salt://",), "the salt:// path of a directory"),
}


@frozen
class Settings:
    """
    The settings of an administrator. Every duration is in seconds.

    state_dir
        Directory of the database, mode 0700. Survives reboots. One minion has it alone.
    run_dir
        Directory of the locks. Does not survive a reboot. One minion has it alone.
    registry_dir
        Directory in which the minions of this host note themselves; the same for all of them.
    service
        Name of the minion's own unit or service.
    packages
        The minion's own packages; empty: ask the package manager.
    hold
        Why rollouts leave this minion alone, as a text; empty if they do not.
    jobs_timeout
        How long an update waits for the other jobs before it is postponed.
    return_timeout
        How long a restart waits for returns to reach the master.
    restart_timeout
        How long the minion may take to report that it runs, after a restart or a rollback.
    watch_timeout
        How long an updated minion may take to prove healthy; then it is rolled back.
    stable_interval
        How long the minion has to run without a restart before the update is committed.
    health_check
        A check that has to succeed before an update is committed: a program with its absolute
        path and its arguments, or the name of an SLS.
    rollback
        ``required`` or ``optional``: with ``optional``, a requested update also starts if there
        would be no way back.
    extension_restart
        ``deferred`` or ``manual``: whether the minion restarts, deferred, when another version of
        this extension has been installed.
    on_change
        ``restart`` or ``tell``: whether the minion restarts, deferred, when others have replaced
        the code that it runs from.
    restart
        ``handover`` or ``wait``: whether the minion before a restart by others stays until its jobs
        have ended, or the restart waits for them. Where a minion cannot be handed over, it waits.
    restart_jitter
        A restart after the set-up or after such an installation waits for a random time up to
        this at first, so that not all minions of a master restart at once.
    extensions
        ``stop`` or ``report``: whether an update stops or continues if an extension, or a module
        that the states use, would be missing after it.
    other_minions
        ``stop`` or ``report``: whether an update stops or continues if another minion, or a proxy
        minion, runs from the same packages without this extension.
    backup
        Files and directories that a rollback restores in addition to the minion's own.
    extension_source
        Where an update of this extension comes from: a directory with wheels, the URL of an
        index, or a ``salt://`` path of a wheel or of a directory with wheels; empty for what pip
        is configured with.
    slots_source
        Where builds of Salt are: a directory of this host, or a ``salt://`` path of one; empty for
        none.
    slots_sources
        More sources of builds, which a caller may name.
    slots_dir
        Directory of the slots: versions of Salt that no package owns. All minions of a host share
        it, and all users may read it. Its path has no blanks.
    slots_keep
        How many slots are kept besides those that a minion runs from or goes back to, as a number.
    slots_keyring
        File with the keys of GnuPG by which builds have to be signed; empty if they need not be.
    steps_dir
        Directory of the upgrade steps.
    steps_source
        A ``salt://`` path of a directory with more upgrade steps; empty for none.
    step_timeout
        How long one upgrade step may take.
    transactional_reboot
        ``manual``, ``rollback`` or ``always``: which reboots are requested on a transactional
        system. An update and a rollback take effect there with the next boot.
    tick_interval
        How often the engine looks at the database.
    stop_timeout
        How long any stop or restart of the service waits for running jobs.
    shutdown_timeout
        The same if the whole system shuts down.
    attempts
        How often a job is started before its interruption is reported, as a number. The first
        start counts.
    rerun
        Functions that may be run again when a restart or a crash has interrupted them;
        ``module.*`` stands for every function of a module. State runs are resumed anyway.
    """

    state_dir: str = "/var/lib/salt-safeupdate"
    run_dir: str = "/run/salt-safeupdate"
    registry_dir: str = "/var/lib/salt-safeupdate/registry"
    service: str = "salt-minion"
    packages: tuple[str, ...] = ()
    hold: str = ""
    jobs_timeout: float = 600.0
    return_timeout: float = 600.0
    restart_timeout: float = 120.0
    watch_timeout: float = 300.0
    stable_interval: float = 10.0
    health_check: tuple[str, ...] = ()
    rollback: str = "required"
    extension_restart: str = "deferred"
    on_change: str = "tell"
    restart: str = "handover"
    restart_jitter: float = 10.0
    extensions: str = "stop"
    other_minions: str = "stop"
    backup: tuple[str, ...] = ()
    extension_source: str = ""
    slots_source: str = ""
    slots_sources: tuple[str, ...] = ()
    slots_dir: str = "/opt/salt-slots"
    slots_keep: int = 1
    slots_keyring: str = ""
    steps_dir: str = "/etc/salt/safeupdate/steps"
    steps_source: str = ""
    step_timeout: float = 600.0
    transactional_reboot: str = "manual"
    tick_interval: float = 1.0
    stop_timeout: float = 600.0
    shutdown_timeout: float = 60.0
    attempts: int = 2
    rerun: tuple[str, ...] = ()

    @property
    def database(self) -> str:
        return os.path.join(self.state_dir, "safeupdate.db")

    @property
    def unit_name(self) -> str:
        """The name of the unit without its kind: what the minion is called among slots."""
        return self.service.removesuffix(".service")

    @property
    def instance(self) -> str:
        """The part of unit names that is only this minion's on the host; empty by default."""
        parent, name = os.path.split(self.state_dir)
        if self.state_dir == Settings.state_dir:
            return ""
        return name if os.path.basename(parent) == _MINIONS else name_of(self.state_dir)


_DEFAULTS = {field.name: field.default for field in fields(Settings)}


def as_json(settings: Settings) -> str:
    """Return the settings as text, from which :func:`from_mapping` makes them again."""
    return json.dumps(
        {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(settings).items()
        }
    )


def from_mapping(given: object) -> Settings:
    """Return the Settings for the ``safeupdate:`` value of the opts, or raise InputError."""
    if given is None:
        return Settings()
    if not isinstance(given, Mapping):
        raise InputError(
            "The configuration key 'safeupdate' must be a mapping; see the configuration reference."
        )
    return Settings(**{key: _known(key, value) for key, value in given.items()})


def _known(key: Any, value: object) -> Any:
    """Return the value of a key as Settings have it, or raise InputError."""
    if key not in _DEFAULTS:
        raise InputError(
            f"The configuration key 'safeupdate:{key}' does not exist. "
            f"Known keys: {', '.join(sorted(_DEFAULTS))}."
        )
    return _checked(key, value, _DEFAULTS[key])


def effective(given: object) -> tuple[Settings, list[str]]:
    """
    Return the Settings that are in effect for the ``safeupdate:`` value, and what is wrong with it.

    A key that is not valid counts as not given: jobs run, and are recorded, nevertheless.
    """
    if not isinstance(given, Mapping):
        try:
            return from_mapping(given), []
        except InputError as err:
            return Settings(), [str(err)]
    valid, problems = _valid(given)
    return Settings(**valid), problems


def of_minion(
    opts: Mapping[str, Any], *, service: str = Settings.service
) -> tuple[Settings, list[str]]:
    """
    Return the Settings that are in effect for a minion, from all its opts, and what is wrong.

    Minions of one host share nothing: only the one of ``/etc/salt`` has the default directories.
    Each other one has its own below them, or below its ``root_dir``.
    *service* is the name of its service unless the settings have one.
    """
    given = opts.get("safeupdate")
    if not isinstance(given, Mapping):
        given, problems = {}, effective(given)[1]
    else:
        given, problems = _valid(given)
    return Settings(**{**_directories(opts), "service": service, **given}), problems


def is_proxy(opts: Mapping[str, Any]) -> bool:
    """Tell whether these are the opts of a proxy minion, which has no packages of its own."""
    return bool(opts.get("proxy")) or os.path.basename(str(opts.get("conf_file"))) == "proxy"


def _directories(opts: Mapping[str, Any]) -> dict[str, str]:
    """Return what differs from the defaults."""
    config = os.path.dirname(str(opts.get("conf_file") or "")) or _CONFIG_DIR
    proxy = is_proxy(opts)
    if config != _CONFIG_DIR:
        config = os.path.realpath(config)
    if not proxy and config in (_CONFIG_DIR, os.path.realpath(_CONFIG_DIR)):
        return {}
    root = os.path.join("/", str(opts.get("root_dir") or "/"))
    # Many proxies have one configuration directory.
    name = name_of(f"{config}/{opts.get('id')}" if proxy else config)
    below = [
        os.path.join(root, each.lstrip("/"), _MINIONS, name)
        for each in (Settings.state_dir, Settings.run_dir)
    ]
    return {
        "state_dir": below[0],
        "run_dir": below[1],
        "steps_dir": os.path.join(config, "safeupdate", "steps"),
    }


def name_of(path: str) -> str:
    """Return a name for the path that is readable, unique, and fit for a file or a unit."""
    # A digest by hashlib would load OpenSSL into the engine of each minion, which needs it for
    # nothing else.
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", path).strip("-.")[-_READABLE:].strip("-.")
    return f"{readable}-{zlib.crc32(path.encode()):0{_DIGITS}x}"


def _valid(given: Mapping[Any, Any]) -> tuple[dict[Any, Any], list[str]]:
    """Return what is valid of it, as Settings have it, and what is wrong with the rest."""
    problems, valid = [], {}
    for key, value in given.items():
        try:
            valid[key] = _known(key, value)
        except InputError as err:
            problems.append(str(err))
    return valid, problems


def _checked(key: str, value: object, default: object) -> Any:
    if key == "hold":
        # Whatever somebody wrote to keep the host as it is: an error here would let it go.
        return str(_NO_REASON if value is True else value or "").strip()
    if isinstance(default, tuple):
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list | tuple) or not all(
            isinstance(item, str) and item for item in value
        ):
            raise InputError(f"'safeupdate:{key}' must be a list of names.")
        if key == "slots_sources":
            return tuple(_checked_text("slots_source", each, "") for each in value)
        return tuple(value)
    if isinstance(default, int):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"'safeupdate:{key}' must be a whole number above 0.")
        return value
    if isinstance(default, float):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value < math.inf
        ):
            raise InputError(f"'safeupdate:{key}' must be a number of seconds above 0.")
        return float(value)
    return _checked_text(key, value, default)


def _checked_text(key: str, value: object, default: object) -> Any:
    if key in _PLACES and value == default:
        return value
    if not isinstance(value, str) or not value:
        raise InputError(f"'safeupdate:{key}' must be a text.")
    if key == "extension_source" and not value.startswith(("/", "http://", "https://", "salt://")):
        raise InputError(
            f"'safeupdate:{key}' must be an absolute path, the URL of an index, or a salt:// path."
        )
    indexed = key == "slots_source" and value == "index"
    if key in _PLACES and not indexed and not value.startswith(_PLACES[key][0]):
        raise InputError(f"'safeupdate:{key}' must be {_PLACES[key][1]}.")
    if key in _WORDS and value not in _WORDS[key]:
        words = [f"'{word}'" for word in _WORDS[key]]
        raise InputError(f"'safeupdate:{key}' must be {', '.join(words[:-1])} or {words[-1]}.")
    if key.endswith("_dir") and not os.path.isabs(value):
        raise InputError(f"'safeupdate:{key}' must be an absolute path.")
    return value
