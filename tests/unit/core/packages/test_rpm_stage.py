"""What dnf, zypper and rpm print about versions, locks and sizes; the rest is in the lab."""

import hashlib

import pytest

from saltext_safeupdate.core.errors import CommandError, SafeUpdateError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.packages.dnf import Dnf, order, parse_repoquery, parse_versionlock
from saltext_safeupdate.core.packages.files import digest
from saltext_safeupdate.core.packages.request import File
from saltext_safeupdate.core.packages.rpm_files import line_tells_altered
from saltext_safeupdate.core.packages.zypper import (
    Zypper,
    parse_locked,
    parse_search,
    parse_size,
    without_locks,
)
from tests.support.fakes import FakeRunner

SEARCH = """<?xml version='1.0'?>
<stream>
<message type="info">Loading repository data...</message>
<search-result version="0.0">
<solvable-list>
<solvable status="other-version" name="salt" kind="package" edition="1:3008.3-1" repository="a"/>
<solvable status="other-version" name="salt" kind="package" edition="3007.15-1" repository="a"/>
<solvable status="other-version" name="salt" kind="package" edition="3007.15-1" repository="b"/>
<solvable status="installed" name="salt" kind="package" edition="3006-9" repository="(System)"/>
</solvable-list>
</search-result>
</stream>
"""
# As zypper 1.14.42 printed it: of any type, a package, ranges of versions, a repository, a pattern.
LOCKS = """<?xml version='1.0'?>
<stream>
<locks size="7"><lock number="1"><name>library</name></lock>
<lock number="2"><name>salt-minion</name><type>package</type></lock>
<lock number="3"><name>other</name><type>package</type>
<range flag="&lt;" epoch="0" version="3008" release=""/></lock>
<lock number="4"><name>fixed</name><type>package</type>
<range flag="=" epoch="0" version="3007" release=""/></lock>
<lock number="5"><name>mirrored</name><type>package</type><repo>lab</repo></lock>
<lock number="6"><name>desktop</name><type>pattern</type></lock>
<lock number="7"><name>venv-*</name><type>package</type></lock>
</locks></stream>
"""
SUMMARY = """<?xml version='1.0'?>
<stream><install-summary download-size="100" space-usage-diff="{diff}" packages-to-change="1"/>
</stream>
"""


def test_the_order_of_versions():
    ordered = ["1~rc1", "1", "1^git1", "1.a", "1.1", "1.9", "1.10", "2"]
    assert sorted(set(ordered), key=order) == ordered


def test_versions_on_offer_newest_first_and_once():
    text = "salt\t0\t3007.15-1\nsalt\t0\t3007.9-2\nsalt\t1\t3006.1-1\n\nsalt\t0\t3007.15-1\n"
    assert parse_repoquery(text) == {"salt": ["3006.1-1", "3007.15-1", "3007.9-2"]}


def test_versions_that_zypper_finds():
    # The last one is only installed: nobody offers it.
    assert parse_search(SEARCH) == {"salt": ["3008.3-1", "3007.15-1"]}


VERSIONLOCK = """\

# Added lock on Sat Nov 21 07:06:14 2026
salt-minion-0:3007.15-1.*
!kernel-0:6-1.*
other-*-0:1-1.*
"""


def test_locked_packages():
    assert parse_locked(LOCKS) == {"library", "salt-minion", "fixed", "mirrored", "venv-*"}
    assert [name for name, _ in parse_versionlock(VERSIONLOCK)] == ["salt-minion", "other-*"]


def test_locks_of_zypper_with_patterns():
    ask = ("zypper", "--non-interactive", "--xmlout")
    run = FakeRunner(
        {
            (*ask, "locks"): (0, LOCKS, ""),
            (*ask, "removelock", "--", "salt-minion"): (0, "", ""),
            (*ask, "addlock", "--", "desktop"): (0, "", ""),
        }
    )
    manager = Zypper(run)
    assert manager.version_locked(["venv-salt-minion", "salt-minion", "desktop", "other"]) == {
        "venv-salt-minion",
        "salt-minion",
    }
    # One with a pattern may be about others as well.
    manager.lock_versions(["venv-salt-minion", "salt-minion", "desktop"], False)
    assert run.calls[-1][3:] == ("removelock", "--", "salt-minion")
    manager.lock_versions(["venv-salt-minion", "salt-minion", "desktop"], True)
    assert run.calls[-1][3:] == ("addlock", "--", "desktop")


def test_a_lock_of_a_version_follows_what_is_installed(tmp_path):
    locks = tmp_path / "versionlock.list"
    locks.write_text(VERSIONLOCK)
    ask = (
        "rpm",
        "-q",
        "--qf",
        r"%{NAME}-%{EPOCHNUM}:%{VERSION}-%{RELEASE}.*\n",
        "--",
        "salt-minion",
    )
    run = FakeRunner({ask: (0, "salt-minion-0:3008.3-1.*\n", "")})
    manager = Dnf(run, locks=str(locks))
    assert manager.version_locked(["salt", "salt-minion", "kernel", "other-one"]) == {
        "salt-minion",
        "other-one",
    }
    manager.follow_locks(["salt", "salt-minion"])
    assert locks.read_text() == VERSIONLOCK.replace("salt-minion-0:3007.15-1.*\n", "") + (
        "salt-minion-0:3008.3-1.*\n"
    )
    manager.lock_versions(["salt", "salt-minion"], False)
    assert manager.version_locked(["salt-minion"]) == set()
    assert "!kernel-0:6-1.*" in locks.read_text()


def test_without_its_plugin_dnf_locks_nothing(tmp_path):
    manager = Dnf(FakeRunner(), locks=str(tmp_path / "none"))
    assert manager.version_locked(["salt"]) == set()
    manager.lock_versions(["salt"], False)
    with pytest.raises(SafeUpdateError, match=r"salt cannot be locked\. Install its plugin"):
        manager.lock_versions(["salt"], True)


@pytest.mark.parametrize(("diff", "total"), [("50", 150), ("-50", 100)])
def test_what_zypper_would_need(diff, total):
    assert parse_size(SUMMARY.format(diff=diff)) == total


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", "[main]\nlocksfile.apply = no\n"),
        (
            "# about [main]\n[main]\ngpgcheck = on\n",
            "# about [main]\n[main]\nlocksfile.apply = no\n\ngpgcheck = on\n",
        ),
    ],
)
def test_settings_without_locks_are_the_same_otherwise(settings, expected):
    assert without_locks(settings) == expected


class FakeRedHat:
    """rpm with one package, whose file list and state can be set."""

    def __init__(self, folder, installed="1-1", files="", code=0, after="2-1"):
        self.folder, self.installed, self.files = folder, installed, files
        self.code, self.after, self.calls = code, after, []

    def __call__(self, argv, *, timeout, ok=(0,), env=None, stdin=None, keep=None):
        argv = tuple(argv)
        self.calls.append(argv)
        code, out = self.answer(argv)
        if ok is not None and code not in ok:
            raise CommandError(argv, f"exit status {code}", returncode=code)
        kept = "".join(filter(keep, out.splitlines(keepends=True)))
        return Result(argv=argv, returncode=code, stdout=kept, stderr="")

    def answer(self, argv):
        if argv[:2] == ("rpm", "-qp"):
            return 0, "agent\t2-1"
        if "%{FILEDIGESTS}" in argv[3]:
            return 0, self.files
        if argv[:3] == ("rpm", "-q", "--list"):
            names = ("/lib", "/lib/one", "/etc/new") if "--package" in argv else ("/lib/one",)
            return 0, "".join(f"{self.folder}{name}\n" for name in names)
        if argv[:2] == ("rpm", "--upgrade"):
            self.installed = self.after
            return self.code, ""
        if argv[:2] == ("rpm", "-q"):
            arch = "%{ARCH}" in argv[3]
            return 0, f"agent.x\t{self.installed}\t1\n" if arch else f"agent\t{self.installed}\n"
        raise KeyError(argv)


@pytest.fixture
def staged(tmp_path):
    (tmp_path / "agent-2-1.rpm").write_text("content")
    path = str(tmp_path / "agent-2-1.rpm")
    return File("agent", "2-1", path, digest(path))


def _upgrades(run):
    return [argv for argv in run.calls if argv[1] == "--upgrade"]


ONE = {name: hashlib.new(name, b"one").hexdigest() for name in ("md5", "sha256", "sha512")}
PLAIN, DOC, CONFIG, GHOST = "0", "2", "17", "64"


@pytest.mark.parametrize(
    ("installed", "file", "installs"),
    [("1-1", "one", True), ("2-1", "one", False), ("2-1", "other", True)],
)
def test_what_is_whole_is_not_installed_again(tmp_path, staged, installed, file, installs):
    (tmp_path / "file").write_text(file)
    run = FakeRedHat(tmp_path, installed, f"0\t0\t8\t{ONE['sha256']}\t{tmp_path}/file\n")
    Dnf(run).install([staged])
    command = ("rpm", "--upgrade", "--oldpackage", "--replacepkgs", staged.path)
    assert _upgrades(run) == ([command] if installs else [])


@pytest.mark.parametrize(
    ("content", "state", "flags", "name", "differs"),
    [
        ("one", "0", PLAIN, "lib.py", False),
        ("other", "0", PLAIN, "lib.py", True),
        (None, "0", PLAIN, "lib.py", True),
        ("other", "0", DOC, "readme", True),
        ("other", "0", CONFIG, "conf", False),
        (None, "0", CONFIG, "conf", False),
        (None, "0", GHOST, "cache", False),
        # Documentation that was left out, or a file that another package has replaced.
        (None, "2", DOC, "readme", False),
        ("other", "1", PLAIN, "lib.py", False),
        # Scriptlets of Salt's packages remove byte code and compile it anew.
        ("other", "0", PLAIN, "lib.cpython-311.pyc", False),
        (None, "0", PLAIN, "lib.cpython-311.pyc", False),
    ],
)
def test_which_files_make_a_package_altered(tmp_path, content, state, flags, name, differs):
    if content is not None:
        (tmp_path / name).write_text(content)
    assert (
        line_tells_altered(f"{state}\t{flags}\t8\t{ONE['sha256']}\t{tmp_path}/{name}\n") is differs
    )


@pytest.mark.parametrize(
    ("number", "name"), [("(none)", "md5"), ("1", "md5"), ("8", "sha256"), ("10", "sha512")]
)
def test_digests_of_every_age(tmp_path, number, name):
    for content in ("one", "other"):
        (tmp_path / "file").write_text(content)
        line = f"0\t0\t{number}\t{ONE[name]}\t{tmp_path}/file\n"
        assert line_tells_altered(line) is (content == "other")


def test_directories_and_links_have_no_contents(tmp_path):
    (tmp_path / "link").symlink_to("elsewhere")
    assert not line_tells_altered(f"0\t0\t8\t\t{tmp_path}\n")
    assert not line_tells_altered(f"0\t0\t8\t{ONE['sha256']}\t{tmp_path}/link\n")
    assert line_tells_altered(f"0\t0\t8\t\t{tmp_path}/missing\n")


@pytest.mark.parametrize(("code", "after"), [(1, "2-1"), (0, "1-1")])
def test_rpm_that_fails_with_or_without_an_exit_status(tmp_path, staged, code, after):
    with pytest.raises(CommandError, match=f"exit status {code}"):
        Dnf(FakeRedHat(tmp_path, code=code, after=after)).install([staged])


def test_unnamed_files_of_an_interrupted_rpm_are_removed_and_no_others(tmp_path, staged):
    for name in ("lib", "lib/newer", "etc"):
        (tmp_path / name).mkdir()
    gone = ["lib/one;65a0b1c2", "lib/newer/new;65a0b1c2", "etc/new;65a0b1c2"]
    kept = ["lib/one", "lib/mine;final", "other;65a0b1c2x", "lib/;x", "etc/other;65a0b1c2"]
    for name in gone + kept:
        (tmp_path / name).write_text("")
    gone.append("lib/lib64;65a0b1c2")
    (tmp_path / gone[-1]).symlink_to("newer")
    Dnf(FakeRedHat(tmp_path, installed="2-1")).install([staged])
    left = {name for name in gone + kept if (tmp_path / name).exists()}
    assert left == set(kept)
