"""What sets a minion or a master up: its configuration, and the stop guard of a minion."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import salt.config

from ...core.errors import InputError, SafeUpdateError
from ...core.jobs.stop_guard import StopGuard
from ...core.record.facts import MADE
from ...core.record.store import Store
from ...core.settings import Settings, from_mapping, of_minion
from . import stand_ins
from .config_files import ConfigFiles
from .merging import (
    NAMES,
    ConfigFile,
    directory,
    engine,
    first_executor,
    managed,
    peer_runner,
    place_of,
)
from .stand_ins import OPTIONS, StandIns

# Any minion may ask; it is told a version.
_ANY_MINION = ".+"
# The minion has not read yet what the files say.
PENDING = "pending"
_NO_STAND_INS = (
    "There are no stand-ins for this extension: if its package cannot be loaded, as after another "
    "Python was installed, the minion runs no job at all."
)
# Keys for masters that the pillar 'safeupdate' may have.
_OF_MASTERS = ("redeliver_window",)


def minion_file(
    minion: Subject, path: str | None = None, settings: Mapping[str, Any] | None = None
) -> ConfigFile:
    """
    Return the file that names our executor, our engine and their stand-ins, with our *settings*.

    Raises SafeUpdateError.
    """

    def missing(names: list[str]) -> list[str]:
        # Salt's loader for executors is needed here only.
        from ...ordering import known

        return known.missing_executors(minion.opts, names)

    files = minion_files(minion)
    path = path or place_of(files, NAMES if stand_ins.may_be_apart(files.main_file) else NAMES[1:])
    places = StandIns(path, files.main_file)
    wishes = (
        first_executor(missing),
        engine("safeupdate", {}),
        *(directory(option, places.place(option)) for option in OPTIONS),
    )
    return ConfigFile(files, path, "the state safeupdate.enabled", wishes, settings)


def settings_of(given: object, pillar: object) -> Mapping[str, Any] | None:
    """
    Return the settings of both, those that are *given* first; None if neither has any.

    Raises InputError if a setting does not exist, or cannot be what is said.
    """
    found: dict[str, Any] = {}
    for said in (pillar, given):
        if said is not None and not isinstance(said, Mapping):
            raise InputError(
                "The settings must be a mapping, such as '{jobs_timeout: 1800}'. Nothing was "
                "written."
            )
        found |= said or {}
    for name in _OF_MASTERS:
        found.pop(name, None)
    try:
        from_mapping(found)
    except InputError as err:
        raise InputError(f"{err} Nothing was written.") from err
    return None if given is None and not found else found


def managed_file(minion: Subject) -> ConfigFile | None:
    """Return the file if the state has written one. Raises SafeUpdateError."""
    path = managed(minion_files(minion))
    return minion_file(minion, path) if path else None


def stand_ins_missing(minion: Subject) -> str:
    """Return what is wrong with the stand-ins, or PENDING; empty if nothing is."""
    try:
        file = managed_file(minion)
        said = minion_files(minion).merged().all
    except SafeUpdateError:
        # That is a problem of its own.
        return ""
    if not stand_ins.named_in(minion.opts):
        return PENDING if stand_ins.named_in(said) else _NO_STAND_INS
    differing = StandIns(file.path, _main_file(minion)).differing() if file is not None else []
    return f"The stand-ins for this extension differ: {', '.join(differing)}." * bool(differing)


def master_file(
    minion: Subject, main_file: str | None, path: str | None, window: object
) -> ConfigFile:
    """
    Return the file that sets the master up. Raises SafeUpdateError.

    *main_file* defaults to ``master`` next to the configuration of this minion. *window* is how far
    redelivery looks back, in seconds.
    """
    main_file = main_file or os.path.join(os.path.dirname(_main_file(minion)), "master")
    return master_config(main_file, path, window)


def master_config(
    main_file: str,
    path: str | None,
    window: object,
    by: str = "the state safeupdate.master_enabled",
) -> ConfigFile:
    """
    Return the same for the master whose configuration is *main_file*; *by* says what writes it.

    Raises SafeUpdateError.
    """
    if (
        isinstance(window, bool)
        or not isinstance(window, int | float)
        or not 0 < window < float("inf")
    ):
        raise InputError("'window' must be a number of seconds above 0. Nothing was written.")
    return ConfigFile(
        ConfigFiles(
            main_file=main_file,
            default_include=salt.config.DEFAULT_MASTER_OPTS["default_include"],
        ),
        path,
        by,
        (
            engine("safeupdate_redeliver", {"window": window}),
            peer_runner(_ANY_MINION, "safeupdate.master_version"),
        ),
    )


def minion_files(minion: Subject) -> ConfigFiles:
    return ConfigFiles(
        main_file=_main_file(minion),
        default_include=salt.config.DEFAULT_MINION_OPTS["default_include"],
    )


def _main_file(minion: Subject) -> str:
    found: str = minion.opts.get("conf_file") or salt.config.DEFAULT_MINION_OPTS["conf_file"]
    return found


class Subject(Protocol):
    """What is set up: the running minion, or the one in the snapshot of a transaction."""

    @property
    def opts(self) -> Mapping[str, Any]: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def stop_guard(self) -> StopGuard | None: ...

    @property
    def store(self) -> Store | None:
        """The record; None if it is hidden."""
        ...


class SetUp:
    """
    The files that have to be written so that this minion is set up.

    *config_file* gets the configuration; None: the file that this minion includes. *stop_guard*
    tells whether there is to be one. *settings* are the minion's; None: as
    they are. Raises SafeUpdateError if the configuration cannot be
    written without taking something away.
    """

    def __init__(
        self,
        minion: Subject,
        config_file: str | None,
        stop_guard: bool,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._file = minion_file(minion, config_file, settings)
        self._stand_ins = StandIns(self._file.path, _main_file(minion))
        self._guard = minion.stop_guard
        planned = {**minion.opts, "safeupdate": self._file.settings}
        if self._guard is not None and settings:
            wanted = of_minion(planned, service=minion.settings.service)[0]
            self._guard = self._guard.with_settings(wanted)
        self._guarded = stop_guard
        self._store = minion.store
        # Seconds, so that not all minions restart at once.
        self.jitter = of_minion(planned)[0].restart_jitter
        # Whether the minion has to read its configuration again.
        self.restarts = self._file.takes_effect_by_restart(minion.opts)
        self.warnings = self._file.warnings

    def changes(self) -> dict[str, Any]:
        """Return what differs, by path, as a state reports it."""
        found = self._file.changes()
        if self._stand_ins.differing():
            old = "stand-ins" if self._stand_ins.present() else ""
            found[self._stand_ins.directory] = {"old": old, "new": "stand-ins"}
        guard = self._guard
        if guard is not None and self._guarded:
            found |= {path: {"old": "", "new": "stop guard"} for path in guard.differing()}
        elif guard is not None and os.path.exists(guard.drop_in):
            found[guard.drop_in] = {"old": "stop guard", "new": ""}
        return found

    def _note_directory(self) -> None:
        """Note that the directory was made for our file: it goes with it."""
        directory = os.path.dirname(self._file.path)
        if self._store is not None and not os.path.isdir(directory):
            self._store.set_fact(MADE, (directory,))

    def carry_out(self) -> None:
        """Write the files. Raises SafeUpdateError."""
        if self._guard is not None:
            if self._guarded:
                self._guard.install()
            else:
                self._guard.remove()
        if self._file.differs:
            self._note_directory()
        # Before the file that names them.
        self._stand_ins.write()
        if self._file.differs:
            self._file.write()
