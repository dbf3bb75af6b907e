"""Write the list of the loaders' files in each Salt series, from the Salt of each series.

``python3 -m devtools.removed_modules`` writes ``core/prepare/removed_modules_data.py`` again from
the venvs of the tests. The unit tests compare it with the Salt that they run on.
"""

from __future__ import annotations

import ast
import itertools
import textwrap
from collections.abc import Mapping
from pathlib import Path

from devtools import venvs
from devtools.cache import Cache
from devtools.command import REPO

DATA = REPO / "src" / "saltext_safeupdate" / "core" / "prepare" / "removed_modules_data.py"
KINDS = (
    "beacons",
    "engines",
    "executors",
    "modules",
    "renderers",
    "returners",
    "sdb",
    "states",
)
HEAD = '''\
"""
The files of each Salt series for its loaders, and the names that vanish with them.

Written by ``devtools.removed_modules.py``; the unit tests compare it with each series.
"""

SERIES = ({series})
'''


def files(salt: Path, kind: str) -> dict[str, set[str]]:
    """Return the files of a loader in a Salt package, each with the names it may load under."""
    found = {}
    for path in sorted((salt / kind).iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if source.suffix == ".py" and not path.name.startswith("_") and source.exists():
            found[path.stem] = names(source) or {path.stem}
    return found


def names(source: Path) -> set[str]:
    """Return the names that ``__virtual__`` of a file may return, according to the source."""
    constants = {}
    returned: list[ast.expr] = []
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constants[node.targets[0].id] = node.value
        elif isinstance(node, ast.FunctionDef) and node.name == "__virtual__":
            ends = [each for each in ast.walk(node) if isinstance(each, ast.Return)]
            returned += [end.value for end in ends if end.value is not None]
    if "__virtualname__" in constants:
        returned.append(constants["__virtualname__"])
    found = set()
    for value in returned:
        for part in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
            told = constants.get(part.id) if isinstance(part, ast.Name) else part
            if isinstance(told, ast.Constant) and isinstance(told.value, str):
                found.add(told.value)
    return found


def spans(by_series: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return the files by the first and the last series that has them."""
    found: dict[str, list[str]] = {}
    for name in sorted(set().union(*by_series.values())):
        there = [series for series, having in by_series.items() if name in having]
        found.setdefault(f"{there[0]}-{there[-1]}", []).append(name)
    return found


def vanishing(by_series: Mapping[str, Mapping[str, set[str]]]) -> dict[str, list[str]]:
    """Return the names that vanish with a file, for vanishing files with other names."""
    found = {}
    for now, then in itertools.pairwise(by_series):
        stay = set().union(*by_series[then].values())
        for file in sorted(by_series[now].keys() - by_series[then].keys()):
            lost = by_series[now][file] - stay
            if lost != {file}:
                found[file] = sorted(lost)
    return found


def written(salts: Mapping[str, Path]) -> str:
    """Return the text of the data for the Salt package of each series."""
    text = [HEAD.format(series=", ".join(f'"{series}"' for series in salts))]
    every = {k: {s: files(salt, k) for s, salt in salts.items()} for k in KINDS}
    text += [
        "# The files of each loader, by the first and the last series that has them.",
        "FILES = {",
    ]
    for kind, by_series in every.items():
        text.append(f'    "{kind}": {{')
        for span, listed in spans({s: set(found) for s, found in by_series.items()}).items():
            words = textwrap.indent(textwrap.fill(" ".join(listed), 84), " " * 12)
            text.append(f'        "{span}": """\n{words}\n        """,')
        text.append("    },")
    text.append("}\n")
    text += [
        "# Names that vanish with a removed file, if it is not just the name of the file.",
        "NAMES = {",
    ]
    for kind, by_series in every.items():
        if other := vanishing(by_series):
            text.append(f'    "{kind}": {{')
            text += [f'        "{file}": "{" ".join(lost)}",' for file, lost in other.items()]
            text.append("    },")
    return "\n".join([*text, "}\n"])


def main() -> None:
    cache = Cache()
    salts = {}
    for version in venvs.SERIES:
        site = next(venvs.series(cache, version).glob("lib/python3*/site-packages"))
        salts[version.partition(".")[0]] = site / "salt"
    DATA.write_text(written(salts), encoding="utf-8")


if __name__ == "__main__":
    main()
