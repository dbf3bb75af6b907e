"""
Files that Salt loads in place of this extension while that cannot be loaded.

With our executor in the configuration and without our package, Salt runs no job at all. So the
state that writes the configuration also writes stand-ins, into a directory that it names there
('executor_dirs', 'engines_dirs'). Their names differ from the names of our modules: Salt
takes a module by its file's name first, so they are used only if ours are not there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import SafeUpdateError
from ...core.extensions import ourselves
from ...core.host import files

# Which option names the directory of which files, and which of our programs these are.
_FILES = {
    "executor_dirs": ("safeupdate_executor.py", "transactional_update_executor.py"),
    "engines_dirs": ("safeupdate_engine.py",),
}
OPTIONS = tuple(_FILES)
# The end of the name of the directory outside.
_APART = "-safeupdate"


class StandIns:
    """
    Those that belong to one configuration file of ours, for the minion with that *main_file*.

    If the name of our file begins with "_", they are outside of the configuration: nothing that
    owns, copies or moves that takes them away from a minion that asks for them. Files of other
    names have them next to them, as earlier versions did.
    """

    def __init__(self, config_file: str, main_file: str) -> None:
        directory, name = os.path.split(config_file)
        if name.startswith("_"):
            self.directory = os.path.join(_apart(main_file), os.path.basename(main_file))
        else:
            # A pattern such as '*' must not have Salt read it as a configuration file.
            self.directory = os.path.join(directory, f".{name.removesuffix('.conf')}.d")

    def place(self, option: str) -> str:
        """Return the directory that belongs to an option of Salt's."""
        return os.path.join(self.directory, _below(option))

    @property
    def directories(self) -> list[str]:
        """Return the directories, the lowest first."""
        found = [*map(self.place, OPTIONS), self.directory]
        above = os.path.dirname(self.directory)
        return [*found, *([above] if above.endswith(_APART) else [])]

    def wanted(self) -> dict[str, str]:
        """Return the contents that the files must have, by path."""
        source = sources()
        return {
            os.path.join(self.place(option), name): files.text(
                os.path.join(source, _below(option), name)
            )
            for option, names in _FILES.items()
            for name in names
        }

    def differing(self) -> list[str]:
        """Return the paths of the files that are not there or not as they have to be."""
        return [path for path, text in self.wanted().items() if files.text(path) != text]

    def present(self) -> list[str]:
        """Return the paths of the files that are there."""
        return [path for path in self.wanted() if os.path.exists(path)]

    def write(self) -> None:
        """Write what differs. Raises SafeUpdateError."""
        wanted = self.wanted()
        for path in self.differing():
            try:
                os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
                files.write_atomic(path, wanted[path], mode=0o644)
            except OSError as err:
                raise SafeUpdateError(
                    f"{path} cannot be written: {err.strerror or err}. The configuration is as it "
                    "was; check its directory."
                ) from err


def may_be_apart(main_file: str) -> bool:
    """Tell whether this process, and no lesser user, may write outside of the configuration."""
    place = os.path.dirname(_apart(main_file))
    return os.access(place, os.W_OK) and not files.others_on_the_way(place)


def _apart(main_file: str) -> str:
    """Return a directory next to the configuration, such as /etc/salt-safeupdate."""
    return os.path.dirname(os.path.abspath(main_file)) + _APART


def sources() -> str:
    """Return where this package has them."""
    return os.path.join(ourselves.home(), "stand_ins")


def _below(option: str) -> str:
    return option.removesuffix("_dirs")


def named_in(opts: Mapping[str, Any]) -> bool:
    """Tell whether each of our options names a directory that has our stand-ins."""
    return all(_has(opts.get(option), names) for option, names in _FILES.items())


def _has(listed: object, names: Sequence[str]) -> bool:
    return any(
        isinstance(each, str) and all(os.path.exists(os.path.join(each, name)) for name in names)
        for each in (listed if isinstance(listed, list) else ())
    )
