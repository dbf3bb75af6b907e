import contextlib
import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError, InputError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.packages import apt, apt_output
from saltext_safeupdate.core.packages.request import Action, Change, File, Request
from tests.support.fakes import FakeRunner

CAPTURED = pathlib.Path(__file__).parents[1] / "captured"
SIMULATE = ("apt-get", "--simulate", "--quiet", "-o", "Debug::NoLocking=true")
INSTALL = (*SIMULATE, "--allow-downgrades", "--allow-change-held-packages", "install", "--")
ALL = {"libsalt", "salt-common", "salt-minion", "salt-ssh"}


def captured(name):
    return (CAPTURED / f"apt-{name}.txt").read_text()


def _apt(answers, **kwargs):
    run = FakeRunner(answers)
    return apt.Apt(run, **kwargs), run


def test_who_owns_what():
    # Several packages share a directory, and a diversion is an owner of nothing.
    assert apt_output.parse_owners(captured("owners")) == {
        "salt-common",
        "libsalt",
        "salt-minion",
        "base-files",
        "libc6",
        "dash",
    }


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/usr/lib/salt.service", ("/lib/salt.service", "/usr/lib/salt.service")),
        ("/lib/salt.service", ("/lib/salt.service", "/usr/lib/salt.service")),
        ("/opt/salt/bin/python3", ("/opt/salt/bin/python3",)),
    ],
)
def test_files_are_asked_for_under_both_names_of_a_merged_usr(path, asked):
    manager, run = _apt({("dpkg-query", "-S", "--", *asked): (1, "salt: /x\n", "no path found")})
    assert manager.owners([path]) == {"salt"}
    assert len(run.calls) == 1


def test_nothing_is_asked_about_no_paths():
    manager, run = _apt({})
    assert manager.owners([]) == set()
    assert run.calls == []


def test_which_files_no_package_owns():
    asked = ("/lib/a", "/opt/salt/x/METADATA", "/usr/lib/a", "/usr/share/b")
    asked = tuple(sorted({*asked, "/share/b"}))
    said = "salt, other:amd64: /lib/a\ndiversion by x from: /usr/share/b\n"
    manager, _ = _apt({("dpkg-query", "-S", "--", *asked): (1, said, "no path found")})
    assert manager.unowned(["/usr/lib/a", "/opt/salt/x/METADATA", "/usr/share/b"]) == {
        "/opt/salt/x/METADATA",
        "/usr/share/b",
    }
    assert manager.unowned([]) == set()


def test_who_needs_whom_in_exactly_its_version():
    assert set(apt_output.parse_bonds(captured("locks"))) == {
        ("salt-common", "libsalt"),
        ("salt-minion", "salt-common"),
        ("salt-ssh", "salt-common"),
        ("salt-ssh", "salt-minion"),
    }


@pytest.mark.parametrize("start", sorted(ALL))
def test_siblings_are_found_from_any_of_them_in_either_direction(start):
    (argv,) = _argv_of_siblings()
    manager, _ = _apt({argv: (0, captured("locks"), "")})
    assert manager.siblings([start]) == ALL
    assert manager.siblings(["unrelated"]) == {"unrelated"}


def _argv_of_siblings():
    asked = []

    def run(argv, **kwargs):
        asked.append(tuple(argv))
        raise CommandError(argv, "only asked")

    with pytest.raises(CommandError):
        apt.Apt(run).siblings(["x"])
    return asked


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        ("b\t1:2-3\tii \t, a (= 1:2-3)", [("b", "a")]),
        ("b\t1\tii \t, a:amd64 (= 1:2-3)", [("b", "a")]),
        ("b\t1\tii \ta (= 1:2-3), c", [("b", "a")]),
        ("b\t1\tii \t, a (>= 1:2-3)", []),
        ("b\t1\tii \t, a (= 9)", []),
        ("b\t1\trc \t, a (= 1:2-3)", []),
        ("b\t1\tiF \t, a (= 1:2-3)", [("b", "a")]),
    ],
)
def test_a_lock_is_an_equals_sign_and_the_installed_version(line, pairs):
    assert apt_output.parse_bonds(f"a\t1:2-3\tii \t, \n{line}\n") == pairs


def test_what_is_installed():
    argv = (
        "dpkg-query",
        "-W",
        "-f",
        r"${Package}\t${Version}\t${db:Status-Abbrev}\n",
        "--",
        "absent",
        "libsalt",
        "salt-common",
        "salt-minion",
        "was-there",
    )
    manager, _ = _apt({argv: (1, captured("installed"), "no packages found matching absent")})
    found = manager.installed(argv[5:])
    # Only its configuration is left of the last one.
    assert found == dict.fromkeys(("libsalt", "salt-common", "salt-minion"), "3006.28")
    assert manager.installed([]) == {}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("upgrade", {}),
        ("install-noop", {}),
        (
            "dist-upgrade",
            {
                "salt-ssh": Change("3006.28", ""),
                "salt-minion": Change("3006.28", "3008.3"),
                "salt-common": Change("3006.28", "3007.15"),
                "libsalt": Change("3006.28", "3007.15"),
            },
        ),
        (
            "install",
            {
                "salt-ssh": Change("3006.28", ""),
                "salt-minion": Change("3006.28", "3008.3"),
                "salt-common": Change("3006.28", "3007.15"),
                "libsalt": Change("3006.28", "3007.15"),
                "salt-plugin": Change("", "3007.15"),
            },
        ),
        ("install-ver", dict.fromkeys(ALL, Change("3006.28", "3007.15"))),
        ("remove", dict.fromkeys(ALL - {"libsalt"}, Change("3006.28", ""))),
        ("purge", dict.fromkeys(ALL - {"libsalt"}, Change("3006.28", ""))),
    ],
)
def test_what_apt_says_that_it_would_do(name, changes):
    assert apt_output.parse_simulation(captured(name)) == changes


def _request(action, *targets, **kwargs):
    pairs = tuple(each if isinstance(each, tuple) else (each, None) for each in targets)
    return Request(action=action, targets=pairs, **kwargs)


@pytest.mark.parametrize(
    ("request_", "argv"),
    [
        (_request(Action.INSTALL, "a"), (*INSTALL, "a")),
        (_request(Action.INSTALL, ("a", "1:2"), "b"), (*INSTALL, "a=1:2", "b")),
        (
            _request(Action.INSTALL, "a", release="sid"),
            (*SIMULATE, "--target-release=sid", *INSTALL[5:], "a"),
        ),
        (_request(Action.REMOVE, "a"), (*SIMULATE, "remove", "--", "a")),
        (_request(Action.PURGE, "a"), (*SIMULATE, "purge", "--", "a")),
        (_request(Action.UPGRADE), (*SIMULATE, "upgrade")),
        (_request(Action.UPGRADE, full=True), (*SIMULATE, "dist-upgrade")),
        (_request(Action.AUTOREMOVE), (*SIMULATE, "autoremove")),
    ],
)
def test_how_apt_is_asked(request_, argv):
    manager, run = _apt({argv: (0, captured("install-ver"), "")})
    assert manager.simulate(request_)["salt-minion"] == Change("3006.28", "3007.15")
    assert run.calls == [argv]


def test_what_cannot_succeed_is_an_error():
    manager, _ = _apt({(*INSTALL, "nosuch"): (100, "", "E: Unable to locate package nosuch")})
    with pytest.raises(CommandError, match="Unable to locate"):
        manager.simulate(_request(Action.INSTALL, "nosuch"))


def test_package_files_are_opened():
    path = "/srv/salt-minion.deb"
    manager, _ = _apt(
        {
            ("dpkg-deb", "--show", "--showformat", r"${Package}\t${Version}", "--", path): (
                0,
                captured("deb-show"),
                "",
            ),
            (
                "dpkg-query",
                "-W",
                "-f",
                r"${Package}\t${Version}\t${db:Status-Abbrev}\n",
                "--",
                "salt-minion",
            ): (0, captured("installed").splitlines()[2] + "\n", ""),
        }
    )
    request = Request(action=Action.INSTALL, files=(path,))
    assert manager.simulate(request) == {"salt-minion": Change("3006.28", "3007.15")}


def test_what_a_failed_scriptlet_leaves_is_half_done():
    argv = (
        "dpkg-query",
        "-W",
        "-f",
        r"${Package}\t${db:Status-Abbrev}\n",
        "--",
        "salt-common",
        "salt-minion",
        "was-there",
    )
    manager, _ = _apt({argv: (1, captured("unfinished"), "no packages found matching absent")})
    assert manager.unfinished(argv[5:]) == ["salt-minion"]
    assert manager.unfinished([]) == []


@pytest.mark.parametrize(
    ("status", "half_done"),
    [
        ("ii ", False),
        ("hi ", False),
        ("rc ", False),
        ("un ", False),
        ("iU ", True),
        ("iF ", True),
        ("iH ", True),
        ("iW ", True),
        ("it ", True),
        ("iiR", True),
        ("iHR", True),
        ("rH ", True),
    ],
)
def test_every_state_of_dpkg(status, half_done):
    argv = ("dpkg-query", "-W", "-f", r"${Package}\t${db:Status-Abbrev}\n", "--", "a")
    manager, _ = _apt({argv: (0, f"a\t{status}\n", "")})
    assert manager.unfinished(["a"]) == (["a"] if half_done else [])


def test_repair_keeps_the_configuration_and_asks_nothing():
    seen = {}

    def run(argv, *, timeout, ok=(0,), env=None, stdin=None, keep=None):
        seen.update(argv=argv, env=env)
        raise CommandError(argv, "exit status 1", stderr=captured("repair.err"))

    with pytest.raises(CommandError, match="post-installation script"):
        apt.Apt(run).repair(["salt-minion"])
    assert seen["argv"] == ("dpkg", "--force-confold", "--configure", "--pending")
    assert seen["env"] == {"DEBIAN_FRONTEND": "noninteractive"}


def test_the_stamp_changes_with_the_database(tmp_path):
    status = tmp_path / "status"
    status.write_text("a")
    manager, _ = _apt({}, status_file=str(status))
    before = manager.stamp()
    assert manager.stamp() == before
    new = tmp_path / "new"
    new.write_text("b")
    os.utime(new, ns=(status.stat().st_atime_ns, status.stat().st_mtime_ns))
    new.rename(status)
    assert manager.stamp() != before


def test_an_upgrade_without_some_packages(tmp_path):
    pinned = tmp_path / "preferences"
    pinned.write_text("Package: kernel\nPin: version 6.*\nPin-Priority: 1001\n")
    manager, _ = _apt({}, preferences=str(pinned))
    env = manager.without(["salt-minion", "salt-common"], str(tmp_path))
    config = pathlib.Path(env["APT_CONFIG"]).read_text()
    preferences = pathlib.Path(config.partition('"')[2].partition('"')[0])
    assert config.startswith("Dir::Etc::Preferences ")
    assert preferences.read_text() == (
        "Package: salt-common\nPin: release *\nPin-Priority: -1\n\n"
        "Package: salt-minion\nPin: release *\nPin-Priority: -1\n\n" + pinned.read_text()
    )


def test_nothing_pinned_by_the_administrator(tmp_path):
    manager, _ = _apt({}, preferences=str(tmp_path / "none"))
    manager.without(["a"], str(tmp_path))
    assert (tmp_path / "apt-preferences").read_text().count("Package:") == 1


def test_what_the_administrator_has_configured_elsewhere_stays(tmp_path, monkeypatch):
    theirs, pinned = tmp_path / "theirs.conf", tmp_path / "their-pins"
    theirs.write_text(f'Acquire::Retries "3";\nDir::Etc::Preferences "{pinned}";')
    pinned.write_text("Package: kernel\nPin: version 6.*\nPin-Priority: 1001\n")
    monkeypatch.setenv("APT_CONFIG", str(theirs))
    argv = ("apt-config", "shell", "file", "Dir::Etc::preferences/f")
    manager, _ = _apt({argv: (0, f"file='{pinned}'\n", "")})
    env = manager.without(["salt-minion"], str(tmp_path))
    config = pathlib.Path(env["APT_CONFIG"]).read_text()
    assert config.startswith(theirs.read_text() + "\n")
    # The last one counts.
    assert config.endswith(f'\nDir::Etc::Preferences "{tmp_path}/apt-preferences";\n')
    pins = (tmp_path / "apt-preferences").read_text()
    assert pins.startswith("Package: salt-minion")
    assert pins.endswith(pinned.read_text())


NAME = "--root=/tmp"
CALLS = [
    lambda manager: manager.owners([NAME]),
    lambda manager: manager.unowned([NAME]),
    lambda manager: manager.installed([NAME]),
    lambda manager: manager.simulate(Request(action=Action.INSTALL, targets=((NAME, "1"),))),
    lambda manager: manager.simulate(
        Request(action=Action.INSTALL, targets=((NAME, None),), release=NAME)
    ),
    lambda manager: manager.simulate(Request(action=Action.REMOVE, targets=((NAME, None),))),
    lambda manager: manager.simulate(Request(action=Action.PURGE, targets=((NAME, None),))),
    lambda manager: manager.simulate(Request(action=Action.INSTALL, files=(NAME,))),
    lambda manager: manager.candidates([NAME]),
    lambda manager: manager.targets([NAME], None),
    lambda manager: manager.version_locked([NAME]),
    lambda manager: manager.unfinished([NAME]),
    lambda manager: manager.needs({NAME: "1"}),
    lambda manager: manager.needs([File(NAME, "1", NAME, "")]),
    lambda manager: manager.repair([NAME]),
]


@pytest.mark.parametrize("call", CALLS)
def test_no_name_is_taken_for_an_option(call):
    """Whatever a state, a repository or a file names."""
    said = {
        "dpkg-query": f"{NAME}\tiHR\tiHR\n",
        "apt-get": f"Inst {NAME} [0] (1 repository [all])\n",
        "apt-cache": f" {NAME} | 1 | there\n",
        "dpkg-deb": f"{NAME}\t1",
    }
    seen = []

    def run(argv, **kwargs):
        seen.extend(argv[: argv.index("--")] if "--" in argv else argv)
        assert NAME in argv or f"{NAME}=1" in argv or "--pending" in argv
        return Result(argv=argv, returncode=0, stdout=said.get(argv[0], ""), stderr="")

    with contextlib.suppress(InputError, OSError):
        call(apt.Apt(run))
    assert seen
    assert NAME not in seen
    assert f"{NAME}=1" not in seen


def test_what_copies_of_installed_packages_take(tmp_path):
    """As much as their packages, where there is one; what is not installed has no copy."""
    names = ("agent", "gone", "kept", "lib")
    installed = ("dpkg-query", "-W", "-f", apt._INSTALLED_FORMAT, "--", *names)
    rows = "agent\t1\tii \nkept\t3\tii \nlib\t1:2\tii \ngone\t1\trc \n"
    answers = {installed: (0, rows, "")}

    def shown(package, returncode, text):
        argv = ("apt-cache", "show", "--no-all-versions", "--", package)
        answers[argv] = (returncode, text, "")

    shown("agent=1", 0, "Package: agent\nInstalled-Size: 100\nSize: 700\n")
    shown("kept=3", 0, "Package: kept\nInstalled-Size: 50\n")
    answers["dpkg-query", "-W", "-f", r"${Installed-Size}\n", "--", "kept"] = (0, "50\n", "")
    (tmp_path / "lib_1%3a2_all.deb").write_bytes(b"x" * 30)
    manager, _ = _apt(answers, archives=str(tmp_path))
    assert manager.needs_to_secure(names[::-1]) == 700 + 50 * 1024 + 30
    assert _apt({})[0].needs_to_secure([]) == 0


FORM = "${Package}\\t${Version}\\t${db:Status-Abbrev}\\n"


@pytest.mark.parametrize(("pinned", "meant"), [("3007.15", "3007.15"), ("3008.3", "3007.16")])
def test_a_series_is_the_version_that_is_pinned_or_else_its_newest(pinned, meant):
    offers = "".join(f"a | {each} | http://x y\n" for each in ("3008.3", "3007.16", "3007.15"))
    policy = f"a:\n  Installed: 3007.1\n  Candidate: {pinned}\n"
    manager, _ = _apt(
        {
            ("apt-cache", "madison", "--", "a"): (0, offers, ""),
            ("apt-cache", "policy", "--", "a"): (0, policy, ""),
            ("dpkg-query", "-W", "-f", FORM, "--", "a"): (0, "a\t3007.1\tii \n", ""),
        }
    )
    assert manager.targets(["a"], "3007") == {"a": meant}
