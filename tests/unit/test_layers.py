"""Which room may import what, seen in the source: at the top, in functions, and for types."""

import ast
import pathlib
import sys
from typing import NamedTuple

import pytest

import saltext_safeupdate

ROOT = pathlib.Path(saltext_safeupdate.__file__).parent
SHELLS = (
    *("beacons", "engines", "executors", "grains", "modules", "output", "runners", "stand_ins"),
    "states",
)
LONGEST = 420

BASE = {"core/errors", "core/frozen", "core/settings"}
LOWEST = {"core/host", *BASE}
LOW = {"core/extensions", "core/generations", "core/packages", "core/record", *LOWEST}
MIDDLE = {"core/jobs", "core/prepare", "core/transactional"}
CORE = {"core/supervisor", "core/slots", "core/times", *MIDDLE, *LOW}
ADMIN = {"admin/transactional", "admin/updates", "admin/status", "admin/setup", "admin/errors"}

BELOW_ADMIN = {
    *("admin/errors", "factory", "hooks", "master", "minion", "ordering", "patches", "this_host"),
    *CORE,
}

# What each room may import, itself left out. A room that is not here must not exist.
MAY_IMPORT = {
    "": set(),
    "shells": {*ADMIN, "hooks", "master", "minion", "this_host", *BASE},
    "admin": set(),
    "admin/transactional": {"admin/updates", "admin/status", *BELOW_ADMIN},
    "admin/updates": {"admin/status", *BELOW_ADMIN},
    "admin/status": {"admin/setup", *BELOW_ADMIN},
    "admin/setup": BELOW_ADMIN,
    "admin/errors": {"core/errors"},
    "hooks": {"minion", "ordering", "patches", "this_host", *BASE},
    "minion": {"factory", "patches", "this_host", *CORE},
    "ordering": {"factory", "patches", "this_host", *CORE},
    "master": {"fleet", "patches", *CORE},
    "fleet": {"core/errors", "core/times"},
    "factory": {"this_host", "core/wiring", *CORE},
    "this_host": {"core/wiring", *CORE},
    "patches": CORE,
    "core": set(),
    "core/launch": {"core/program", "core/wiring", *CORE},
    "core/program": {"core/wiring", *CORE},
    "core/wiring": CORE,
    "core/supervisor": MIDDLE - {"core/jobs"} | LOW,
    "core/jobs": LOW,
    "core/prepare": LOW,
    "core/transactional": LOW - {"core/generations"},
    "core/slots": {"core/extensions", "core/packages", *LOWEST},
    "core/extensions": LOWEST,
    "core/generations": {"core/packages", "core/record", *LOWEST},
    "core/packages": LOWEST,
    "core/record": LOWEST,
    "core/host": BASE,
    "core/settings": {"core/errors", "core/frozen"},
    "core/times": {"core/errors"},
    "core/frozen": set(),
    "core/errors": set(),
}

# The modules of Salt that one room alone knows, with all that is below them.
ONLY_IN = {
    "salt.cache": "master",
    "salt.client": "master",
    "salt.loader": "ordering",
    "salt.master": "master",
    "salt.minion": "minion",
    "salt.state": "ordering",
    "salt.utils.job": "master",
    "salt.utils.master": "master",
    "salt.utils.minions": "master",
}
EXCEPTIONS = set()

# Most of these is the documentation of their functions.
LONG = {
    "modules/safeupdate.py",
    "modules/transactional_update.py",
    "runners/safeupdate.py",
}

DUNDERS = {
    "__opts__",
    "__salt__",
    "__context__",
    "__grains__",
    "__pillar__",
    "__states__",
    "__runner__",
    "__utils__",
    "__proxy__",
    "__events__",
}


class Import(NamedTuple):
    """One module that a file imports. *at_once*: as soon as the file itself is imported."""

    name: str
    at_once: bool


class Source:
    """The modules below a directory, by their path, and what they import of each other."""

    def __init__(self, root):
        self.root = root
        self.files = {str(path.relative_to(root)): path for path in sorted(root.rglob("*.py"))}
        self.imports = {name: list(self._imports(name)) for name in self.files}
        self.inner = {
            name: {found for found in map(self.file, self._names(name)) if found}
            for name in self.files
        }

    def _names(self, name):
        return {found.name for found in self.imports[name]}

    def file(self, module):
        """Return the file of a module of ours, by its absolute name."""
        package, *parts = module.split(".")
        if package != "saltext_safeupdate":
            return None
        path = "/".join(parts)
        for name in (f"{path}.py", f"{path}/__init__.py".lstrip("/")):
            if name in self.files:
                return name
        return None

    def _imports(self, name):
        tree = ast.parse(self.files[name].read_text(encoding="utf-8"))
        parts = ("saltext_safeupdate", *pathlib.PurePath(name).with_suffix("").parts)
        later = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _for_types(node)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = ".".join(parts[: -node.level]) if node.level else ""
                base = ".".join(filter(None, (base, node.module)))
                found = [self._module(base, alias.name) for alias in node.names]
            else:
                continue
            yield from (Import(each, node not in later) for each in found)

    def _module(self, base, name):
        """Return the module that ``from base import name`` imports."""
        inner = f"{base}.{name}"
        if base == "saltext_safeupdate" or base.startswith("saltext_safeupdate."):
            return inner if self.file(inner) else base
        # ``from salt import minion`` imports a module, ``from salt.minion import X`` a name.
        return inner if base == "salt" else base

    def loaded(self, name):
        """Return the files that are imported as soon as this one is."""
        found, todo = set(), [name]
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += filter(None, (self.file(i.name) for i in self.imports[one] if i.at_once))
        return found

    def upward(self):
        """Return who imports what it may not, of our own rooms and of Salt."""
        inner = {
            (name, other)
            for name, others in self.inner.items()
            for other in others
            if room(other) not in {room(name), *MAY_IMPORT[room(name)]}
        }
        of_salt = {
            (name, module)
            for name in self.files
            for module, where in ONLY_IN.items()
            if room(name) != where
            and any(f"{found}.".startswith(f"{module}.") for found in self._names(name))
        }
        return inner | of_salt

    def circles(self):
        """Return the modules of which each imports the next, the last one the first."""
        found, done = [], set()

        def visit(name, path):
            if name in path:
                found.append([*path[path.index(name) :], name])
            elif name not in done:
                for other in sorted(self.inner[name]):
                    visit(other, [*path, name])
                done.add(name)

        for name in self.files:
            visit(name, [])
        return found

    def long(self):
        return {
            name
            for name, path in self.files.items()
            if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST
        }


def _for_types(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def room(name):
    """Return the room of a file: its directory, or the file itself where none is its own."""
    parts = pathlib.PurePath(name).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    if parts[:1] in (("admin",), ("core",)):
        return "/".join(parts[:2])
    return "shells" if parts[:1] and parts[0] in SHELLS else "/".join(parts[:1])


SOURCE = Source(ROOT)
ALL = sorted(SOURCE.files)


def test_every_file_has_a_room():
    assert [name for name in ALL if room(name) not in MAY_IMPORT] == []


def test_rooms_import_what_is_below_them_only():
    assert SOURCE.upward() == EXCEPTIONS


def test_no_module_imports_itself_by_way_of_others():
    assert SOURCE.circles() == []


def test_no_module_is_too_long():
    assert SOURCE.long() == LONG


def test_the_grain_loads_nothing_at_once_but_the_settings():
    """Grains are made in each minion and each ``salt-call``, also in one that is not set up."""
    loaded = SOURCE.loaded("grains/safeupdate.py") - {
        *("grains/safeupdate.py", "admin/status/grain.py"),
        *("admin/__init__.py", "admin/status/__init__.py"),
    }
    assert {room(name) for name in loaded} == {"core/host", *BASE}
    assert "core/host/hidden.py" in loaded
    assert len(loaded) < 8


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("core/")])
def test_core_imports_only_the_standard_library_and_itself(name):
    foreign = {
        found.name
        for found in SOURCE.imports[name]
        # Only mypy reads the first one, and brings it.
        if found.name != "typing_extensions"
        and found.name.partition(".")[0] not in sys.stdlib_module_names
        and not (SOURCE.file(found.name) or "").startswith("core/")
    }
    assert foreign == set()


@pytest.mark.parametrize("name", [name for name in ALL if room(name) != "shells"])
def test_no_dunders_of_the_loader_outside_the_shells(name):
    tree = ast.parse(SOURCE.files[name].read_text(encoding="utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names & DUNDERS == set()


@pytest.mark.parametrize("name", [name for name in ALL if name != "core/host/command.py"])
def test_only_the_seam_starts_programs(name):
    assert "subprocess" not in {found.name for found in SOURCE.imports[name]}


# -- the checks themselves ---------------------------------------------------------


@pytest.fixture
def source(tmp_path):
    def make(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Source(tmp_path)

    return make


@pytest.mark.parametrize(
    "text",
    [
        "from ...minion import intake",
        "def f():\n    from ...minion import intake",
        "if TYPE_CHECKING:\n    from ...minion.intake import Intake",
        "import saltext_safeupdate.minion.intake",
        "from saltext_safeupdate.minion.intake import Intake",
    ],
)
def test_an_arrow_up_is_seen_wherever_it_is(source, text):
    found = source({"core/jobs/bad.py": text, "minion/intake.py": "class Intake: ..."})
    assert found.upward() == {("core/jobs/bad.py", "minion/intake.py")}


@pytest.mark.parametrize(
    "text",
    ["import salt.loader.lazy", "from salt.loader import states", "from salt import loader"],
)
def test_what_one_room_knows_of_salt_is_seen_in_another(source, text):
    found = source({"fleet/bad.py": text, "ordering/good.py": text})
    assert found.upward() == {("fleet/bad.py", "salt.loader")}


def test_a_module_of_salt_with_a_similar_name_is_another(source):
    assert source({"fleet/a.py": "import salt.minions\nimport salt.utils.minion"}).upward() == set()


def test_a_circle_is_seen(source):
    files = {
        "core/jobs/a.py": "from . import b",
        "core/jobs/b.py": "from ..host import c\ndef f():\n    from .a import g",
        "core/host/c.py": "",
    }
    assert source(files).circles() == [["core/jobs/a.py", "core/jobs/b.py", "core/jobs/a.py"]]


def test_what_is_loaded_at_once_is_told_from_what_is_loaded_later(source):
    files = {
        "core/jobs/a.py": "from . import b\nif TYPE_CHECKING:\n    from . import c",
        "core/jobs/b.py": "def f():\n    from . import d",
        "core/jobs/c.py": "",
        "core/jobs/d.py": "",
    }
    assert source(files).loaded("core/jobs/a.py") == {"core/jobs/a.py", "core/jobs/b.py"}
