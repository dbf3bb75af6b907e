"""The extension gets where the lab's minions and masters look for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from devtools.experiment import extension_layer
from devtools.lab.container import Container, Lab
from devtools.lab.recipes import PREFIX

_FIND = (
    "from importlib.metadata import entry_points;"
    "print([e.load().__name__ for e in entry_points(group='salt.loader')])"
)


def test_the_minions_python_finds_the_entry_point(
    lab: Lab, site: Path, make_container: Callable[..., Container]
) -> None:
    container = make_container("3007.15", extra_layers=[extension_layer(lab, site)]).up()
    found = container.run([f"{PREFIX}/bin/python3", "-c", _FIND]).stdout
    assert "saltext_safeupdate" in found
