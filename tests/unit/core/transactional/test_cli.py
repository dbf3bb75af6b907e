import pytest

from saltext_safeupdate.core.errors import InputError, SafeUpdateError
from saltext_safeupdate.core.transactional import cli
from saltext_safeupdate.core.transactional.cli import Options
from tests.support.fakes import FakeRunner

from . import captured

NEW = (6, 1, 1)
BASE = ("transactional-update", "--non-interactive", "--drop-if-no-change", "--no-selfupdate")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(), BASE[1:]),
        (Options(self_update=True), BASE[1:3]),
        (Options(snapshot="continue"), (*BASE[1:], "--continue")),
        (Options(snapshot=7), (*BASE[1:], "--continue", "7")),
        (Options(snapshot="7"), (*BASE[1:], "--continue", "7")),
        (Options(snapshot=""), BASE[1:]),
        (Options(quiet=True, snapshot="continue"), (*BASE[1:], "--continue", "--quiet")),
        (Options(keep=True, quiet=True), (*BASE[1:], "--keep", "--quiet")),
        (Options(drop_if_no_change=False), (BASE[1], BASE[3])),
    ],
)
def test_general_options(options, words):
    assert tuple(cli.general_options(options, NEW)) == words


@pytest.mark.parametrize(
    "snapshot", ["last", "0", "-1", "1.5", True, "7;reboot", "٣", "7 reboot", [1]]
)
def test_a_wrong_snapshot_is_refused(snapshot):
    with pytest.raises(InputError, match="nothing was changed"):
        cli.general_options(Options(snapshot=snapshot), NEW)


@pytest.mark.parametrize("name", sorted(cli.SUBCOMMANDS))
def test_every_subcommand(name):
    assert cli.build([name], Options(), NEW) == (*BASE, name)


@pytest.mark.parametrize("words", [[], [""], ["--help"], ["shell"], ["nonsense"]])
def test_no_list_without_a_subcommand(words):
    """The tool would start a distribution upgrade."""
    with pytest.raises(InputError, match="unknown subcommand"):
        cli.build(words, Options(), NEW)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("apply", (4, 1), (4, 2)),
        ("setup-selinux", (2, 27), (2, 28)),
        ("setup-kdump", (4, 0), (4, 1)),
        ("setup-fips", (4, 3), (4, 4)),
        ("register", (4, 0), (4, 1)),
        ("run", (2, 22), (2, 23)),
        ("cleanup-overlays", (2, 25), (2, 26)),
        ("kdump", (6, 0, 4), (6, 1)),
        ("kdump", (6, 0, 7), (6, 0, 3)),
    ],
)
def test_version_gates(name, old, new):
    assert cli.build([name], None, new) == ("transactional-update", name)
    with pytest.raises(InputError, match=r"Nothing was changed; update the tool"):
        cli.build([name], None, old)


def test_keep_needs_5_1():
    assert "--keep" in cli.general_options(Options(keep=True), (5, 1))
    with pytest.raises(InputError, match=r"came with 5\.1"):
        cli.general_options(Options(keep=True), (5, 0, 9))


def test_version():
    assert cli.parse_version(captured.VERSION) == (6, 1, 1)
    with pytest.raises(SafeUpdateError, match="no version"):
        cli.parse_version("usage")
    assert cli.tool_version(FakeRunner({cli.VERSION: (0, captured.VERSION, "")})) == NEW


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, []),
        ("", []),
        ('a \'b c\' "d\\"e" f\\ g', ["a", "b c", 'd"e', "f g"]),
        ("$HOME `x` * ; |", ["$HOME", "`x`", "*", ";", "|"]),
        (["a b", 1, ""], ["a b", "1", ""]),
        (("x",), ["x"]),
    ],
)
def test_split_words(value, words):
    assert cli.split_words(value, "args") == words


@pytest.mark.parametrize("value", ["'open", 7, {"a": 1}, ["a\0b"]])
def test_words_that_cannot_be_split(value):
    with pytest.raises(InputError, match="args"):
        cli.split_words(value, "args")


def test_package_words():
    assert cli.package_words("install", "a", ["b", "c"], "--x 'y z'") == [
        *("pkg", "install", "--x", "y z", "a", "b", "c"),
    ]
    assert cli.package_words("remove", None, "a b", None) == ["pkg", "remove", "a", "b"]


@pytest.mark.parametrize("pkgs", [None, "", [], ["--root=/"], ["a\0"]])
def test_package_words_refused(pkgs):
    with pytest.raises(InputError):
        cli.package_words("install", None, pkgs, None)


@pytest.mark.parametrize("command", ["", [], [""], "'", None, 3])
def test_command_words_refused(command):
    with pytest.raises(InputError):
        cli.command_words(command)


def test_rollback_words():
    assert cli.rollback_words(None) == ["rollback"]
    assert cli.rollback_words("last") == ["rollback", "last"]
    assert cli.rollback_words("12") == ["rollback", "12"]
    with pytest.raises(InputError):
        cli.rollback_words("reboot")
