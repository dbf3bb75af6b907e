import pytest

from saltext_safeupdate.core.extensions import requires
from saltext_safeupdate.core.host.command import Result

from .pythons import MINOR, NEXT, inventory


@pytest.mark.parametrize(
    ("argv", "line", "minor"),
    [
        (
            ("dpkg-deb", "--contents", "/x.deb"),
            "-rw-r--r-- root/root 24 2026-01-01 00:00 "
            "./opt/saltstack/salt/lib/python3.14/site-packages/salt/__init__.py",
            14,
        ),
        (
            ("rpm", "-qpl", "/x.rpm"),
            "/usr/lib/venv-salt-minion/lib/python3.11/site-packages/salt/__init__.py",
            11,
        ),
        (
            ("dpkg-deb", "--contents", "/x.deb"),
            "./usr/lib/python3/dist-packages/salt/__init__.py",
            None,
        ),
    ],
)
def test_the_python_of_a_package(argv, line, minor):
    def runner(asked, **_):
        if "md5sums" in asked:
            return Result(argv=asked, returncode=2, stdout="", stderr="")
        assert asked == argv
        return Result(argv=asked, returncode=0, stdout=f"./usr/\n{line}\n", stderr="")

    assert requires.python_of([argv[-1]], runner) == minor


def test_a_package_that_names_its_files_is_not_unpacked_for_its_python():
    def runner(asked, **_):
        assert asked == ("dpkg-deb", "--info", "/x.deb", "md5sums")
        place = "opt/saltstack/salt/lib/python3.14/site-packages/salt"
        sums = f"{'a' * 32}  {place}/_version.txt\n{'b' * 32}  {place}/__init__.py\n"
        return Result(argv=asked, returncode=0, stdout=sums, stderr="")

    assert requires.python_of(["/x.deb"], runner) == 14


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", {9, 10, 11, 14}),
        (">=3.10", {10, 11, 14}),
        (">=3.10.2", {10, 11, 14}),
        ("<3.11", {9, 10}),
        (">=3.9,<4", {9, 10, 11, 14}),
        ("<4.0,>=3.11", {11, 14}),
        ("!=3.10.*", {9, 11, 14}),
        ("!=3.10.1, >3.9", {9, 10, 11, 14}),
        ("==3.11.*", {11}),
        ("==3.*", {9, 10, 11, 14}),
        ("~=3.10", {10, 11, 14}),
        ("~=3.10.1", {10}),
        ("<=3.11", {9, 10}),
        ("something else", {9, 10, 11, 14}),
    ],
)
def test_what_requires_python_allows(text, allowed):
    assert {minor for minor in (9, 10, 11, 14) if requires.allows(text, minor)} == allowed


def test_who_says_by_himself_that_he_does_not_fit(old):
    old.add("picky", requires=f"<3.{NEXT}")
    old.add("easy", requires=">=3.6")
    found = inventory(old)
    (problem,) = requires.unfit(found, NEXT)
    assert (problem.extension, f"<3.{NEXT}" in problem.reason) == ("picky", True)
    assert requires.unfit(found, MINOR) == []
    assert requires.unfit(found, None) == []
