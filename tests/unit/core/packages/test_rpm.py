import configparser
import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.packages import rpm, rpm_output
from saltext_safeupdate.core.packages.dnf import Dnf, parse_dnf
from saltext_safeupdate.core.packages.request import Action, Change, Request
from saltext_safeupdate.core.packages.zypper import Zypper, parse_zypper
from tests.support.fakes import FakeRunner

CAPTURED = pathlib.Path(__file__).parents[1] / "captured"
LONG = "salt-minion-with-a-name-so-long-that-a-table-of-80-columns-cannot-hold-it"
RATHER_LONG = "salt-with-a-rather-long-package-name"
OWN = ("salt", "salt-common", "salt-minion", RATHER_LONG)
UPGRADED = dict.fromkeys(OWN, Change("3006.28-1.1", "3007.15-1.1"))
LOCKS = (
    "rpm",
    "-qa",
    "--qf",
    r"[%{=NAME}\t%{=VERSION}-%{=RELEASE}\t%{REQUIRENAME}\t"
    r"%{REQUIREFLAGS:depflags}\t%{REQUIREVERSION}\n]",
)
INSTANCES = ("rpm", "-q", "--qf", r"%{NAME}.%{ARCH}\t%{VERSION}-%{RELEASE}\t%{INSTALLTIME}\n", "--")


def captured(name):
    return (CAPTURED / f"{name}.txt").read_text()


def _rpm(answers, front_end="dnf"):
    run = FakeRunner(answers)
    return Zypper(run) if front_end == "zypper" else Dnf(run, front_end), run


def _installed(*names):
    argv = ("rpm", "-q", "--qf", r"%{NAME}\t%{VERSION}-%{RELEASE}\n", "--", *sorted(names))
    rows = "".join(f"{name}\t3006.28-1.1\n" for name in sorted(names) if name in OWN)
    return {argv: (1, rows, "")}


def _request(action, *targets, **kwargs):
    pairs = tuple(each if isinstance(each, tuple) else (each, None) for each in targets)
    return Request(action=action, targets=pairs, **kwargs)


def test_who_owns_what():
    ask = ("rpm", "-q", "--qf", r"%{NAME}\n", "-f", "--")
    manager, _ = _rpm(
        {
            (*ask, "/a"): (0, "salt\n", ""),
            (*ask, "/b"): (1, "file /b is not owned by any package\n", ""),
            (*ask, "/c"): (1, "", "error: file /c: No such file or directory"),
        }
    )
    assert manager.owners(["/a", "/b", "/c"]) == {"salt"}
    assert manager.unowned(["/a", "/b", "/c"]) == {"/b", "/c"}


def test_who_needs_whom_in_exactly_its_version():
    assert set(rpm_output.parse_bonds(captured("rpm-locks"))) == {
        ("salt-minion", "salt"),
        ("salt-common", "salt"),
        (RATHER_LONG, "salt-minion"),
    }


@pytest.mark.parametrize(
    ("row", "pairs"),
    [
        ("b\t1-1\ta\t=\t2:3-4", [("b", "a")]),
        ("b\t1-1\ta\t=\t3", [("b", "a")]),
        ("b\t1-1\ta(x86-64)\t=\t3-4", [("b", "a")]),
        ("b\t1-1\ta\t>=\t3-4", []),
        ("b\t1-1\ta\t<=\t3-4", []),
        ("b\t1-1\ta\t=\t4", []),
        ("b\t1-1\ta\t\t", []),
    ],
)
def test_a_lock_is_an_equals_sign_and_the_installed_version(row, pairs):
    assert rpm_output.parse_bonds(f"a\t3-4\t/bin/sh\t\t\n{row}\n") == pairs


@pytest.mark.parametrize("start", OWN)
def test_siblings_are_found_from_any_of_them(start):
    manager, _ = _rpm({LOCKS: (0, captured("rpm-locks"), "")})
    assert manager.siblings([start]) == set(OWN)


def test_what_is_installed():
    argv = (
        "rpm",
        "-q",
        "--qf",
        r"%{NAME}\t%{VERSION}-%{RELEASE}\n",
        "--",
        "absent",
        "salt",
        "salt-minion",
    )
    manager, _ = _rpm({argv: (1, captured("rpm-installed"), "")})
    assert manager.installed(argv[5:]) == {"salt": "3006.28-1.1", "salt-minion": "3006.28-1.1"}
    assert manager.installed([]) == {}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dnf-install", {**dict.fromkeys(OWN, "3007.15-1.1"), "salt-plugin": "3007.15-1.1"}),
        ("dnf-install-noop", {}),
        ("dnf-remove", dict.fromkeys(OWN, "")),
        (
            # What it would skip stands in the same table.
            "dnf-long",
            {**dict.fromkeys(OWN, "3007.15-1.1"), LONG: "3007.15-1.2.3.lp155.2.1.git20250101"},
        ),
    ],
)
def test_what_dnf_says_that_it_would_do(name, changes):
    assert parse_dnf(captured(name)) == changes


@pytest.mark.parametrize("front_end", ["dnf", "yum"])
@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (_request(Action.INSTALL, "a"), ("install", "--", "a")),
        (_request(Action.INSTALL, ("a", "2-1"), "b"), ("install", "--", "a-2-1", "b")),
        (_request(Action.REMOVE, "a"), ("remove", "--", "a")),
        (_request(Action.PURGE, "a"), ("remove", "--", "a")),
        (_request(Action.UPGRADE), ("upgrade",)),
        (_request(Action.UPGRADE, "a"), ("upgrade", "--", "a")),
        (_request(Action.AUTOREMOVE), ("autoremove",)),
        (
            _request(Action.INSTALL, "a", release="testing"),
            ("--disablerepo=*", "--enablerepo=testing", "install", "--", "a"),
        ),
        (
            _request(Action.INSTALL, "a", options=("--enablerepo=testing",)),
            ("--enablerepo=testing", "install", "--", "a"),
        ),
    ],
)
def test_how_dnf_is_asked(front_end, request_, words):
    argv = (front_end, "--assumeno", *words)
    answers = {argv: (1, captured("dnf-install"), captured("dnf-install.err"))}
    manager, _ = _rpm({**answers, **_installed(*OWN, "salt-plugin")}, front_end)
    assert manager.simulate(request_) == {**UPGRADED, "salt-plugin": Change("", "3007.15-1.1")}


def test_no_is_no_error_and_an_error_is_one():
    argv = ("dnf", "--assumeno", "install", "--", "nosuch")
    manager, _ = _rpm({argv: (1, "", captured("dnf-install-none.err"))})
    with pytest.raises(CommandError, match="Unable to find a match: nosuch"):
        manager.simulate(_request(Action.INSTALL, "nosuch"))


def test_an_answer_that_is_not_no_is_an_error_whatever_it_says():
    argv = ("dnf", "--assumeno", "remove", "--", "a")
    manager, _ = _rpm({argv: (1, "", "The operation would result in removing dnf\n")})
    with pytest.raises(CommandError, match="removing dnf"):
        manager.simulate(_request(Action.REMOVE, "a"))


@pytest.mark.parametrize("front_end", ["dnf", "zypper"])
@pytest.mark.parametrize("name", ["-y", "--downloaddir=/etc"])
def test_what_looks_like_an_option_is_no_package(front_end, name):
    """dnf reads it as an option also behind two hyphens: it parses its arguments twice."""
    manager, run = _rpm({}, front_end)
    for ask in (
        lambda: manager.simulate(_request(Action.INSTALL, "a", name)),
        lambda: (
            manager.fetch({name: "1-1"}, "/d") if front_end == "dnf" else manager.candidates([name])
        ),
    ):
        with pytest.raises(CommandError, match="is not the name of a package") as caught:
            ask()
        assert name in str(caught.value)
    assert run.calls == []


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("zypper-upgrade-all", UPGRADED),
        ("zypper-install", {**UPGRADED, "salt-plugin": Change("", "3007.15-1.1")}),
        ("zypper-install-installed", {}),
        ("zypper-remove", dict.fromkeys(OWN, Change("3006.28-1.1", ""))),
    ],
)
def test_what_zypper_says_that_it_would_do(name, changes):
    assert parse_zypper(captured(name)) == changes


ZYPPER = ("zypper", "--non-interactive", "--xmlout")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (_request(Action.INSTALL, "a"), ("install", "--dry-run", "--oldpackage", "--", "a")),
        (
            _request(Action.INSTALL, ("a", "2-1")),
            ("install", "--dry-run", "--oldpackage", "--", "a=2-1"),
        ),
        (_request(Action.REMOVE, "a"), ("remove", "--dry-run", "--", "a")),
        (_request(Action.PURGE, "a"), ("remove", "--dry-run", "--", "a")),
        (_request(Action.UPGRADE), ("update", "--dry-run")),
        (_request(Action.UPGRADE, full=True), ("dist-upgrade", "--dry-run")),
        (
            _request(Action.UPGRADE, full=True, release="testing"),
            ("dist-upgrade", "--dry-run", "--from", "testing"),
        ),
        (_request(Action.UPGRADE, release="testing"), ("update", "--dry-run", "--repo", "testing")),
        (
            _request(Action.INSTALL, "a", release="testing"),
            (
                *("install", "--dry-run", "--oldpackage", "--force", "--force-resolution"),
                *("--from", "testing", "--", "a"),
            ),
        ),
        (_request(Action.REMOVE, "a", release="testing"), ("remove", "--dry-run", "--", "a")),
    ],
)
def test_how_zypper_is_asked(request_, words):
    manager, _ = _rpm({(*ZYPPER, *words): (0, captured("zypper-upgrade-all"), "")}, "zypper")
    assert manager.simulate(request_) == UPGRADED


def test_zypper_has_no_autoremove():
    manager, run = _rpm({}, "zypper")
    assert manager.simulate(_request(Action.AUTOREMOVE)) == {}
    assert run.calls == []


def test_zypper_has_an_error_for_what_it_does_not_find():
    argv = (*ZYPPER, "install", "--dry-run", "--oldpackage", "--", "nosuch")
    manager, _ = _rpm({argv: (104, captured("zypper-install-none"), "")}, "zypper")
    with pytest.raises(CommandError, match=r"(?s)exit status 104.*No provider of"):
        manager.simulate(_request(Action.INSTALL, "nosuch"))


def test_what_is_no_xml_is_an_error():
    with pytest.raises(CommandError, match="no XML"):
        parse_zypper("System management is locked by the application with pid 1")


def test_package_files_are_opened():
    argv = (
        "rpm",
        "-qp",
        "--nosignature",
        "--qf",
        r"%{NAME}\t%{VERSION}-%{RELEASE}",
        "--",
        "/srv/salt.rpm",
    )
    manager, _ = _rpm({argv: (0, "salt\t3007.15-1.1", ""), **_installed("salt")})
    request = Request(action=Action.INSTALL, files=("/srv/salt.rpm",))
    assert manager.simulate(request) == {"salt": Change("3006.28-1.1", "3007.15-1.1")}


def test_an_interrupted_transaction_leaves_two_versions():
    argv = (*INSTANCES, "absent", "salt", "salt-minion")
    manager, _ = _rpm({argv: (1, captured("rpm-duplicate"), "")})
    assert manager.unfinished(argv[5:]) == ["salt-minion"]
    assert manager.unfinished([]) == []


def test_two_architectures_are_not_half_done():
    text = "libsalt.i686\t1-1\t10\nlibsalt.x86_64\t1-1\t10\n"
    manager, _ = _rpm({(*INSTANCES, "libsalt"): (0, text, "")})
    assert manager.unfinished(["libsalt"]) == []


def test_repair_removes_the_older_version():
    ask = (*INSTANCES, "salt", "salt-minion")
    remove = ("rpm", "-e", "--nodeps", "--", "salt-minion-3006.28-1.1.noarch")
    manager, run = _rpm({ask: (1, captured("rpm-duplicate"), ""), remove: (0, "", "")})
    manager.repair(["salt-minion", "salt"])
    assert run.calls == [ask, remove]


def test_the_age_counts_and_not_the_order():
    text = "a.noarch\t2-1\t20\na.noarch\t1-1\t30\na.noarch\t3-1\t10\n"
    assert rpm_output.parse_instances(text) == {"a.noarch": ["3-1", "2-1", "1-1"]}


def test_dnf_has_no_way_to_leave_packages_out(tmp_path):
    assert _rpm({})[0].without(["salt"], str(tmp_path)) is None


@pytest.mark.parametrize(
    ("settings", "theirs"),
    [
        ("", "usual"),
        ("[main]\narch = x86_64\n", "usual"),
        ("[main]\nlocksfile.path = {elsewhere}\n", "elsewhere"),
        ("[main]\nlocksfile.apply = no\n", ""),
    ],
    ids=["none", "others", "path", "off"],
)
def test_zypper_locks_what_it_leaves_out_for_one_process(tmp_path, settings, theirs):
    for name in ("usual", "elsewhere"):
        (tmp_path / name).write_text(f"\ntype: package\nsolvable_name: {name}\n")
    conf = tmp_path / "conf"
    conf.write_text(settings.format(elsewhere=tmp_path / "elsewhere"))
    out = tmp_path / "out"
    out.mkdir()
    manager = Zypper(FakeRunner(), settings=str(conf), locks=str(tmp_path / "usual"))
    env = manager.without(["salt", "salt-minion"], str(out))
    parser = configparser.ConfigParser()
    parser.read(env["ZYPP_CONF"])
    assert parser["main"]["locksfile.apply"] == "yes"
    locks = pathlib.Path(parser["main"]["locksfile.path"])
    assert locks.parent == out
    names = [line.split()[1] for line in locks.read_text().splitlines() if "solvable_name" in line]
    assert names == [*([theirs] if theirs else []), "salt", "salt-minion"]
    assert ("arch" in parser["main"]) == ("arch" in settings)


def test_the_stamp_changes_with_the_database(tmp_path, monkeypatch):
    monkeypatch.setattr(rpm, "_DATABASES", (str(tmp_path), str(tmp_path / "none")))
    (tmp_path / "rpmdb.sqlite").write_text("a")
    manager, _ = _rpm({})
    before = manager.stamp()
    assert manager.stamp() == before
    (tmp_path / "rpmdb.sqlite-wal").write_text("b")
    assert manager.stamp() != before


@pytest.mark.parametrize("front_end", ["dnf", "zypper"])
def test_what_copies_of_installed_packages_take(front_end):
    sizes = ("rpm", "-q", "--qf", r"%{LONGSIGSIZE} %{LONGSIZE}\n", "--", "salt", "salt-minion")
    answers = _installed("salt", "salt-minion", "gone") | {sizes: (0, "100 700\n(none) 20\n", "")}
    manager, _ = _rpm(answers, front_end)
    assert manager.needs_to_secure(["salt", "salt-minion", "gone"]) == 120
    manager.snapshots = object()
    assert manager.needs_to_secure(["salt", "salt-minion", "gone"]) == 0, "a snapshot has them"
