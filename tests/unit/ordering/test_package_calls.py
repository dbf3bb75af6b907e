"""What a call asks for, compared with what Salt's own package modules then do."""

import inspect

import pytest
from salt.modules import aptpkg, yumpkg, zypperpkg

from saltext_safeupdate.core.packages.request import Action
from saltext_safeupdate.ordering import package_calls

FUNCTIONS = [
    (module, name)
    for module in (aptpkg, yumpkg, zypperpkg)
    for name in ("install", "remove", "purge", "upgrade", "update", "autoremove")
    if hasattr(module, name)
]
SWITCHES = [
    *(
        {key: value}
        for key in ("test", "download_only", "downloadonly", "dryrun", "list_only")
        for value in (True, False)
    ),
    *({key: value} for key in ("root", "installroot") for value in ("/mnt", "/", "")),
    {"downloadonly": 1},
    {},
]
# With these words a command only looks, downloads, or changes another system.
HARMLESS = ("--assume-no", "--download-only", "--downloadonly", "--dry-run", "--installroot=/mnt")
# Those that change something.
VERBS = ("install", "remove", "purge", "upgrade", "update", "dist-upgrade", "autoremove")


class Zypper:
    """What the module calls zypper through."""

    def __init__(self, ran):
        self._ran = ran

    def __call__(self, root=None, **kwargs):
        self._root = [f"--root={root}"] if root and root != "/" else []
        return self

    @property
    def noraise(self):
        return self

    def call(self, *words):
        self._ran.append([*self._root, *words])
        return ""

    exit_code, stdout, stderr, error_msg, SUCCESS_EXIT_CODES = 0, "", "", "", (0,)


@pytest.fixture
def ran(monkeypatch):
    """Give the modules what they need, and return the commands that they run."""
    found = []

    def run(words, *args, **kwargs):
        found.append(list(words))
        return {"retcode": 0, "stdout": "", "stderr": "", "pid": 1}

    functions = {
        "cmd.run": lambda *args, **kwargs: "",
        "cmd.run_all": run,
        "config.get": lambda key, default=None: default,
        "lowpkg.bin_pkg_info": lambda *paths: {},
        "lowpkg.version_cmp": lambda *versions: 0,
        "pkg_resource.parse_targets": lambda *args, **kwargs: (
            {"salt-minion": None},
            "repository",
        ),
        "pkg_resource.version": lambda *names, **kwargs: "1",
    }
    grains = {"os": "x", "os_family": "x", "osarch": "x86_64", "osmajorrelease": 9, "cpuarch": "x"}
    for module in (aptpkg, yumpkg, zypperpkg):
        dunders = {"__salt__": functions, "__grains__": grains, "__opts__": {}, "__context__": {}}
        for name, value in dunders.items():
            monkeypatch.setattr(module, name, value, raising=False)
        monkeypatch.setattr(module, "list_pkgs", lambda **kwargs: {"salt-minion": "1"})
    for module in (yumpkg, zypperpkg):
        monkeypatch.setattr(module, "list_downloaded", lambda *args, **kwargs: {})
        monkeypatch.setattr(module, "refresh_db", lambda *args, **kwargs: True)
    monkeypatch.setattr(aptpkg, "refresh_db", lambda *args, **kwargs: True)
    monkeypatch.setattr(aptpkg, "get_selections", lambda **kwargs: {"hold": []}, raising=False)
    monkeypatch.setattr(yumpkg, "_yum", lambda: "dnf")
    monkeypatch.setattr(yumpkg, "list_holds", lambda *args, **kwargs: [], raising=False)
    monkeypatch.setattr(zypperpkg, "__zypper__", Zypper(found))
    monkeypatch.setattr(zypperpkg, "_systemd_scope", lambda: False)
    monkeypatch.setattr(zypperpkg, "list_provides", lambda **kwargs: {}, raising=False)
    return found


def _changes_the_system(command):
    words = set(command)
    # dnf has no such option, and ends with an error.
    elsewhere = "--root=/mnt" in words and "dnf" not in words
    return bool(words & set(VERBS)) and not words & set(HARMLESS) and not elsewhere


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
@pytest.mark.parametrize(
    ("module", "name"), FUNCTIONS, ids=[f"{m.__name__[13:]}.{n}" for m, n in FUNCTIONS]
)
def test_a_switch_counts_where_the_function_honours_it(ran, module, name, switch):
    function = getattr(module, name)
    packages = {"name": "salt-minion"} if "name" in inspect.signature(function).parameters else {}
    given = {**packages, **switch}
    try:
        inspect.signature(function).bind(**given)
    except TypeError:
        assert package_calls.requested(f"pkg.{name}", function, (), given) is None
        return
    function(**given)
    assert ran
    asked = package_calls.requested(f"pkg.{name}", function, (), given)
    assert (asked is not None) is any(map(_changes_the_system, ran)), ran
    assert asked is None or asked.action is package_calls.ACTIONS[f"pkg.{name}"]


def test_every_function_that_may_change_something_has_been_tried():
    assert {name for _, name in FUNCTIONS} == {
        name.removeprefix("pkg.") for name in package_calls.ACTIONS
    }
    assert set(package_calls.ACTIONS.values()) == set(Action)
