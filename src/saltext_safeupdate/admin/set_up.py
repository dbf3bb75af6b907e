"""The configuration that sets a minion up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import salt.utils.yaml

from ..core.errors import SafeUpdateError
from ..core.host.files import write_atomic
from ..factory import Factory

_HEAD = "# Managed by the state safeupdate.enabled.\n"


def configuration(opts: Mapping[str, Any]) -> str:
    """Return the file's content: the lists that this minion has, with ours added."""
    executors = [
        name for name in opts.get("module_executors") or ["direct_call"] if name != "safeupdate"
    ]
    engines = opts.get("engines") or []
    if isinstance(engines, dict):
        engines = [{name: value} for name, value in engines.items()]
    others = [entry for entry in engines if "safeupdate" not in entry]
    wanted = {
        "module_executors": ["safeupdate", *executors],
        "engines": [*others, {"safeupdate": {}}],
    }
    text: str = salt.utils.yaml.safe_dump(wanted, default_flow_style=False)
    return _HEAD + text


class SetUp:
    """
    The files that have to be written so that this minion is set up.

    *config_file* gets the configuration. *stop_guard* tells whether there is to be one.
    """

    def __init__(self, factory: Factory, config_file: str, stop_guard: bool) -> None:
        self._config_file = config_file
        self._wanted = configuration(factory.opts)
        self._guard = factory.stop_guard
        self._guarded = stop_guard
        # Whether the minion has to read its configuration again.
        self.restarts = read(config_file) != self._wanted

    def changes(self) -> dict[str, Any]:
        """Return what differs, by path, as a state reports it."""
        found: dict[str, Any] = {}
        if self.restarts:
            found[self._config_file] = {"old": read(self._config_file), "new": self._wanted}
        guard = self._guard
        if guard is not None and self._guarded:
            found |= {path: {"old": "", "new": "stop guard"} for path in guard.differing()}
        elif guard is not None and read(guard.drop_in):
            found[guard.drop_in] = {"old": "stop guard", "new": ""}
        return found

    def carry_out(self) -> None:
        """Write the files. Raises SafeUpdateError."""
        if self._guard is not None:
            if self._guarded:
                self._guard.install()
            else:
                self._guard.remove()
        try:
            write_atomic(self._config_file, self._wanted, mode=0o644)
        except OSError as err:
            raise SafeUpdateError(
                f"{self._config_file} cannot be written: {err.strerror or err}. The configuration "
                "is as it was; check its directory."
            ) from err


def read(path: str) -> str:
    """Return the content of the file; empty if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
