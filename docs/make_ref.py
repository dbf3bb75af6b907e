"""Write one reference page for each file that a loader of Salt finds."""

from __future__ import annotations

import pathlib

PACKAGE = "saltext_safeupdate"
SOURCE = pathlib.Path(__file__).parents[1] / "src" / PACKAGE
# The directories of the loader, and the titles of their pages.
KINDS = {
    "modules": "Execution modules",
    "states": "States",
    "runners": "Runners",
    "engines": "Engines",
    "executors": "Executors",
    "beacons": "Beacons",
    "grains": "Grains",
    "output": "Outputters",
}


def files(kind: str) -> list[str]:
    return sorted(path.stem for path in (SOURCE / kind).glob("[!_]*.py"))


def pages(kind: str) -> dict[str, str]:
    """Return the pages of a loader by path: its index and one for each file."""
    title = KINDS[kind]
    names = files(kind)
    entries = "".join(f"   {name}\n" for name in names)
    found = {
        f"{kind}/all/index.rst": f"{_heading(title)}\n.. toctree::\n   :maxdepth: 1\n\n{entries}"
    }
    for name in names:
        found[f"{kind}/all/{name}.rst"] = (
            f"{_heading(f'``{name}``')}\n"
            f".. automodule:: {PACKAGE}.{kind}.{name}\n   :members:\n   :undoc-members:\n"
        )
    return found


def _heading(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n"


def write(directory: pathlib.Path) -> None:
    """Write the pages that differ; remove pages whose file is gone."""
    wanted = {directory / path: text for kind in KINDS for path, text in pages(kind).items()}
    for path in directory.glob("*/all/*.rst"):
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
