"""What dnf 5.4.6 printed, with nobody at a terminal."""

import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.packages.dnf import parse_dnf, parse_repoquery
from saltext_safeupdate.core.packages.dnf5 import (
    Dnf5,
    parse_locks,
    parse_unchecked,
    without_locks,
)
from saltext_safeupdate.core.packages.request import Action, Change, Request
from tests.support.fakes import FakeRunner

CAPTURED = pathlib.Path(__file__).parents[1] / "captured"
LONG = "salt-minion-with-a-name-so-long-that-a-table-of-80-columns-cannot-hold-it"
SALT = dict.fromkeys(("salt", "salt-minion"), "3008.3-1")
LIST = ("dnf5", "--quiet", "--disable-repo=*", "versionlock", "list")
ALL = "--setopt=disable_excludes=*"
INSTALLED = ("rpm", "-q", "--qf", r"%{NAME}\t%{VERSION}-%{RELEASE}\n", "--")


def captured(name):
    return (CAPTURED / f"{name}.txt").read_text()


def _request(name, version=None):
    return Request(action=Action.INSTALL, targets=((name, version),))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dnf5-install", {**SALT, LONG: "3007.15-1.2.3.lp155.2.1.git20250101"}),
        # It would only note that somebody has asked for it.
        ("dnf5-install-noop", {}),
        ("dnf5-skip", SALT),
        ("dnf5-remove", {"salt": "", "salt-minion": ""}),
    ],
)
def test_what_it_would_do(name, changes):
    assert parse_dnf(captured(name)) == changes


def test_no_is_no_error():
    argv = ("dnf5", "--assumeno", "install", "--", "salt-minion-3008.3-1")
    rows = "".join(f"{name}\t3007.15-1\n" for name in SALT)
    run = FakeRunner(
        {
            argv: (1, captured("dnf5-skip"), captured("dnf5-install.err")),
            (*INSTALLED, *SALT): (0, rows, ""),
        }
    )
    expected = dict.fromkeys(SALT, Change("3007.15-1", "3008.3-1"))
    assert Dnf5(run).simulate(_request("salt-minion", "3008.3-1")) == expected


@pytest.mark.parametrize("name", ["dnf5-install-none", "dnf5-locked"])
def test_an_error_is_one(name):
    """It has the exit status of "no" as well, and does not begin with "Error"."""
    run = FakeRunner(
        {("dnf5", "--assumeno", "install", "--", "a"): (1, "", captured(f"{name}.err"))}
    )
    with pytest.raises(CommandError, match="Failed to resolve the transaction"):
        Dnf5(run).simulate(_request("a"))


def test_what_is_on_offer():
    """It takes a line break from its format as two characters, and a tabulator only as one."""
    form = "%{name}\t%{epoch}\t%{version}-%{release}\\n"
    argv = ("dnf5", "--quiet", "repoquery", "--qf", form, "--", "salt-minion", LONG)
    run = FakeRunner({LIST: (0, "", ""), argv: (0, captured("dnf5-repoquery"), "")})
    offers = Dnf5(run).candidates(["salt-minion", LONG])
    assert offers["salt-minion"] == ["3008.3-1", "3007.15-1", "3006.28-1"]
    assert offers == parse_repoquery(captured("dnf5-repoquery"))


@pytest.mark.parametrize(("again", "word"), [(False, "install"), (True, "reinstall")])
def test_where_it_downloads_to(again, word):
    argv = (
        "dnf5",
        "--assumeyes",
        "--setopt=destdir=/d",
        ALL,
        word,
        "--downloadonly",
        "--",
        "salt-1",
    )
    run = FakeRunner({LIST: (0, captured("dnf5-locks"), ""), argv: (0, "", "")})
    Dnf5(run).fetch({"salt": "1"}, "/d", again=again)
    assert run.calls[-1] == argv


def test_locks_that_fix_a_version():
    # One keeps a range, one only keeps a version out.
    assert parse_locks(captured("dnf5-locks")) == {"salt", "salt-minion", "other-*"}
    manager = Dnf5(FakeRunner({LIST: (0, captured("dnf5-locks"), "")}))
    asked = ["salt", "salt-minion", "salt-ssh", "other-one", "nvidia-driver"]
    assert manager.version_locked(asked) == {"salt", "salt-minion", "other-one"}


def test_locks_are_taken_away_and_those_of_others_stay(tmp_path):
    text = captured("dnf5-locks.toml")
    locks = tmp_path / "versionlock.toml"
    locks.write_text(text)
    Dnf5(FakeRunner(), locks=str(locks)).lock_versions(["salt", "salt-minion", "other-one"], False)
    left = locks.read_text()
    assert left == without_locks(text, ["salt", "salt-minion"])
    names = [line.partition(" = ")[2] for line in left.splitlines() if line.startswith("name")]
    # What is left of the minion keeps one version out.
    assert names == ['"nvidia*"', '"other-*"', '"salt-minion"']
    assert 'comparator = "!="' in left
    assert without_locks("", ["salt"]) == ""


def test_locks_are_added_without_a_repository():
    add = (*LIST[:-1], "add", "--", "base")
    run = FakeRunner({LIST: (0, captured("dnf5-locks"), ""), add: (0, "", "")})
    Dnf5(run).lock_versions(["salt", "base"], True)
    assert run.calls == [LIST, add]


def test_which_repositories_are_not_checked():
    # One of those without signatures is switched off.
    assert parse_unchecked(captured("dnf5-repositories")) == ["lab"]
    argv = ("dnf5", "--dump-repo-config=*")
    checked = captured("dnf5-repositories").replace("pkg_gpgcheck = 0", "pkg_gpgcheck = 1")
    for text, says in ((captured("dnf5-repositories"), True), (checked, False)):
        said = Dnf5(FakeRunner({argv: (0, text, "")})).signature_policy()
        assert bool(said and "repository lab" in said) is says
