"""What a call asks for, compared with what Salt's own package modules then do."""

import functools
import inspect

import pytest
from salt.exceptions import CommandExecutionError
from salt.modules import aptpkg, yumpkg, zypperpkg

from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.packages.apt import Apt
from saltext_safeupdate.core.packages.dnf import Dnf
from saltext_safeupdate.core.packages.request import Action
from saltext_safeupdate.ordering import chosen, package_calls
from saltext_safeupdate.ordering.package_calls import Call

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


@pytest.mark.parametrize(
    ("module", "given", "passed"),
    [
        (aptpkg, {"cache_valid_time": 3600}, {"cache_valid_time": 3600}),
        (yumpkg, {"fromrepo": "testing"}, {"fromrepo": "testing"}),
        (yumpkg, {"enablerepo": "testing"}, {"enablerepo": "testing"}),
        (zypperpkg, {}, {}),
    ],
)
@pytest.mark.parametrize("refresh", [True, False])
def test_the_metadata_is_refreshed_once_and_as_the_call_says(
    ran, monkeypatch, module, given, passed, refresh
):
    refreshed = []
    salts = module.refresh_db

    @functools.wraps(inspect.unwrap(salts))
    def refresh_db(*args, **kwargs):
        refreshed.append(kwargs)

    monkeypatch.setattr(module, "refresh_db", refresh_db)
    arguments = {"name": "salt-minion", "refresh": refresh, **given}
    call = package_calls.refresh_first(Call("pkg.install", module.install, (), arguments))
    call.make()
    assert [
        {key: value for key, value in each.items() if key in package_calls.REPOSITORIES}
        | {key: value for key, value in each.items() if key == "cache_valid_time"}
        for each in refreshed
    ] == ([passed] if refresh else [])


@pytest.mark.parametrize("name", ["install", "upgrade", "update"])
@pytest.mark.parametrize(
    "given",
    [
        {"fromrepo": "testing", "disableexcludes": "main"},
        {"repo": "testing"},
        {"enablerepo": "testing", "disablerepo": ["base", "updates"]},
        {"disableexcludes": "main", "branch": "next"},
        {"setopt": "best=0,obsoletes=True"},
        {"setopt": ["best=0"], "obsoletes": False},
        {"exclude": "kernel*", "security": True, "nobest": False, "enablerepo": ["a", "b"]},
        {},
    ],
    ids=str,
)
def test_the_simulation_chooses_from_what_the_call_chooses_from(ran, name, given):
    function = getattr(yumpkg, name)
    if name == "install":
        given = {key: value for key, value in given.items() if key != "obsoletes"}
    function(name="salt-minion", **given)
    (command,) = (each for each in ran if set(each) & set(VERBS))
    request = package_calls.requested(f"pkg.{name}", function, (), {"name": "salt-minion", **given})
    asked = []

    def run(argv, **_):
        asked.append(argv)
        return Result(argv=argv, returncode=0, stdout="", stderr="")

    Dnf(run).plan(request)
    (simulated,) = asked
    # What Salt and we add by ourselves.
    usual = ("--", "--quiet", "--assumeno")
    found = [
        sorted(word for word in words if word.startswith("--") and word not in usual)
        for words in (simulated, command)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "given",
    [
        {"only_upgrade": True},
        {"install_recommends": False},
        {"install_recommends": True},
        {"only_upgrade": False},
    ],
    ids=str,
)
def test_the_simulation_of_apt_changes_what_the_call_changes(ran, given):
    aptpkg.install(name="salt-minion", **given)
    (command,) = (each for each in ran if set(each) & set(VERBS))
    request = package_calls.requested(
        "pkg.install", aptpkg.install, (), {"name": "salt-minion", **given}
    )
    asked = []

    def run(argv, **_):
        asked.append(argv)
        return Result(argv=argv, returncode=0, stdout="", stderr="")

    Apt(run).simulate(request)
    words = {"--only-upgrade", "--install-recommends", "--no-install-recommends"}
    (simulated,) = asked
    assert words.intersection(simulated) == words.intersection(command)


@pytest.mark.parametrize("value", ["assumeyes", "installroot", "downloadonly"])
def test_the_simulation_takes_no_other_option(value):
    given = {value: True, "exclude": "kernel*"}
    request = package_calls.requested("pkg.upgrade", yumpkg.upgrade, (), given)
    assert request is None or request.options == ("--exclude=kernel*",)


def compared(one, other, **_):
    one, other = (each.rpartition(":")[2] for each in (one, other))
    return (one > other) - (one < other)


OFFERED = ["1:3008.3-1", "3007.15-1", "3007.14-1"]


@pytest.mark.parametrize(
    ("module", "asked", "chosen_"),
    [
        (yumpkg, None, None),
        (yumpkg, "latest", None),
        (yumpkg, "3007.15", "3007.15"),
        (yumpkg, "=3007.15-1", "3007.15-1"),
        (yumpkg, "3007.*", "3007.15-1"),
        (yumpkg, "3008.*", "1:3008.3-1"),
        (yumpkg, "<3007.15-1", "3007.14-1"),
        (yumpkg, ">9", ">9"),
        (yumpkg, "3009.*", "3009.*"),
        (zypperpkg, "3007.*", "3007.15-1"),
        (aptpkg, "3007.*", "3007.*"),
        (aptpkg, "<=3007.14-1", "3007.14-1"),
    ],
)
@pytest.mark.parametrize("way", ["version", "pkgs"])
def test_the_version_is_the_one_that_salt_chooses(monkeypatch, module, asked, chosen_, way):
    monkeypatch.setattr(module, "list_repo_pkgs", lambda *names, **_: {names[0]: OFFERED})
    monkeypatch.setattr(module, "version_cmp", compared)
    given = (
        {"name": "salt-minion", "version": asked}
        if way == "version"
        else {"pkgs": [{"salt-minion": asked}]}
    )
    call = Call("pkg.install", module.install, (), given)
    request = package_calls.requested("pkg.install", module.install, (), given)
    assert chosen.exactly(request, call).targets == (("salt-minion", chosen_),)


def test_a_list_that_cannot_be_had_changes_nothing(monkeypatch):
    def list_repo_pkgs(*names, **_):
        raise CommandExecutionError("no repository answers")

    monkeypatch.setattr(yumpkg, "list_repo_pkgs", list_repo_pkgs)
    given = {"name": "salt-minion", "version": "3007.*"}
    request = package_calls.requested("pkg.install", yumpkg.install, (), given)
    call = Call("pkg.install", yumpkg.install, (), given)
    assert chosen.exactly(request, call) == request


def test_arguments_are_found_however_they_are_given():
    def install(name=None, refresh=False, pkgs=None, sources=None, **kwargs):
        return name, refresh, pkgs, sources, kwargs

    def rest(*args, **kwargs):
        call = package_calls.without(Call("pkg.install", install, args, kwargs), {"salt-minion"})
        return call and call.make()

    assert rest("vim,salt-minion", True) == ("vim", True, None, None, {})
    assert rest(None, False, ["vim", "salt-minion"], x=1) == (None, False, ["vim"], None, {"x": 1})
    assert rest(pkgs=[{"vim": "2", "salt-minion": "2"}])[2] == [{"vim": "2"}]
    assert rest(sources=[{"vim": "/v"}, {"salt-minion": "/m"}])[3] == [{"vim": "/v"}]
    assert rest("salt-minion") is None
    assert rest(pkgs=["salt-minion"]) is None


def test_what_is_installed_is_asked_anew_after_a_wait():
    code = "def install(): ..."
    module = {"__context__": {"pkg.list_pkgs": {}, "other": 1}}
    exec(code, module)
    package_calls.forget_installed(functools.wraps(module["install"])(lambda: None))
    assert module["__context__"] == {"other": 1}
    exec(code, elsewhere := {})
    package_calls.forget_installed(elsewhere["install"])
