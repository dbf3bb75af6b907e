import os
import types

import pytest

from saltext_safeupdate.core.errors import CommandError, InputError
from saltext_safeupdate.core.extensions.distributions import Extension
from saltext_safeupdate.core.packages.request import Change
from saltext_safeupdate.core.prepare import findings
from saltext_safeupdate.core.prepare.findings import Circumstances, Surroundings
from saltext_safeupdate.core.prepare.removed_modules import Use

GIB = 1 << 30
OWN = ("salt-common", "salt-minion")
PICKY = Extension(
    name="picky",
    version="1.0",
    place="/x",
    info="picky-1.0.dist-info",
    files=(),
    modules=(),
    python=11,
    requires="<3.14",
)


class Manager:
    """A package manager with an update on offer and nothing against it."""

    name = "fake"

    def __init__(self, **answers):
        self.answers = {
            "simulate": {name: Change("3007.15-1", "3008.3-1") for name in OWN},
            "needs": GIB // 4,
            "needs_to_secure": 0,
            "signature_policy": None,
            "busy": False,
            "unfinished": [],
            "version_locked": set(),
            **answers,
        }

    def __getattr__(self, name):
        answer = self.answers[name]

        def method(*_):
            if isinstance(answer, Exception):
                raise answer
            return answer

        return method


@pytest.fixture
def host(tmp_path):
    """Return a host with one file system of which much is free, and a clock that is right."""
    return Surroundings(
        statvfs=lambda path: _system(),
        device=lambda path: 1,
        exists=lambda path: path in ("/", "/var/lib", "/opt/salt"),
        clock=lambda: 1_800_000_000.0,
        indexes=[str(tmp_path / "*Release")],
    )


def _system(free=10 * GIB, files=10**6, flag=0):
    return types.SimpleNamespace(
        f_bavail=free // 4096, f_frsize=4096, f_files=10**7, f_favail=files, f_flag=flag
    )


def _with(host, **changes):
    return Surroundings(**{**vars(host), **changes})


def _look(host, manager=None, **circumstances):
    given = {
        "manager": manager or Manager(),
        "own": OWN,
        "running": "3007.15",
        "master": "3008.3",
        "state_dir": "/var/lib/state",
        "roots": ("/opt/salt",),
        "targets": dict.fromkeys(OWN, "3008.3-1"),
        **circumstances,
    }
    return findings.preflight(Circumstances(**given), host)


def _codes(found):
    return {(each.code, each.blocking) for each in found}


def test_where_all_is_well_nothing_is_found(host):
    assert _look(host) == []


def test_what_keeps_a_host_as_it_is_does_not_stop_somebody_who_asks_for_it(host):
    manager = Manager(version_locked={"salt-minion"})
    assert _codes(_look(host, manager, hold="ask Jo")) == {
        ("held", False),
        ("version-locked", False),
    }
    told = {each.code: each.problem for each in _look(host, manager, hold="ask Jo")}
    assert "ask Jo" in told["held"]
    assert "salt-minion" in told["version-locked"]


def test_every_problem_is_told_at_once(host, tmp_path):
    release = tmp_path / "x_Release"
    release.write_text("")
    os.utime(release, (2_000_000_000, 2_000_000_000))
    found = _look(
        _with(
            host,
            statvfs=lambda path: _system(free=1000),
            exists=lambda path: True,
        ),
        Manager(signature_policy="Not verified.", busy=True, unfinished=["salt-minion"]),
        master="3006.1",
        under_way="Update u1 is staging.",
        transaction="Snapshot 7 waits for a reboot.",
        obstacle="this host has no service",
        too_old=("It does not know it.", "Install a newer one."),
        marks=[("/tmp/.mark belongs to somebody.", "Remove it.")],
        steps=[("Its steps are on noexec.", "Mount it with exec.")],
        quarantined=[("salt-minion", "3008.3-1")],
        uses=[Use("states", "zfs.filesystem_present")],
        extensions=[PICKY],
        python=14,
    )
    assert _codes(found) == {
        ("other-update-running", True),
        ("quarantined", True),
        ("master-older", True),
        ("module-gone", True),
        ("extension-not-loadable", True),
        ("no-restart", True),
        ("extension-too-old", True),
        ("foreign-mark", True),
        ("steps-noexec", True),
        ("disk-space", True),
        ("signature-policy", False),
        ("clock", True),
        ("package-manager-busy", False),
        ("half-done", False),
        ("transaction-pending", True),
        ("reboot-pending", False),
    }
    assert all(each.problem and each.fix for each in found)


def test_a_version_that_is_not_on_offer_is_told_and_the_rest_as_well(host):
    unavailable = InputError("There is no 3009.0; on offer: 3008.3.")
    (missing, busy) = _look(host, Manager(busy=True), targets={}, unavailable=unavailable)
    assert (missing.code, missing.blocking) == ("target-unavailable", True)
    assert "on offer: 3008.3" in missing.problem
    assert busy.code == "package-manager-busy"


def test_what_cannot_be_installed_is_not_available(host):
    error = CommandError(("apt-get",), "exit status 100", stderr="unmet dependencies")
    (found,) = _look(host, Manager(simulate=error))
    assert (found.code, found.blocking) == ("target-unavailable", True)
    assert "unmet dependencies" in found.problem


def test_an_update_that_would_remove_another_package(host):
    changes = {"salt-minion": Change("3007.15", "3008.3"), "salt-api": Change("3007.15", "")}
    (found,) = _look(host, Manager(simulate=changes))
    assert (found.code, found.blocking) == ("removes-packages", True)
    assert "salt-api" in found.problem


def test_a_check_that_cannot_be_made_is_told_and_the_others_are_made(host):
    error = CommandError(("dpkg-query",), "did not end within 60 s")
    found = _look(host, Manager(unfinished=error, busy=True))
    assert _codes(found) == {("half-done", False), ("package-manager-busy", False)}
    assert "could not be checked: dpkg-query" in found[1].problem


# -- disk space ------------------------------------------------------------------------


def _space(host, free, **circumstances):
    """Look at a host whose file systems have so much free: by the top directory."""
    tops = sorted(free)
    return _look(
        _with(
            host,
            statvfs=lambda path: _system(free=free["/" + path.split("/")[1]]),
            device=lambda path: tops.index("/" + path.split("/")[1]),
        ),
        **circumstances,
    )


def test_each_file_system_is_looked_at(host):
    assert _space(host, {"/var": GIB, "/opt": GIB}) == []
    (found,) = _space(host, {"/var": GIB, "/opt": GIB // 8})
    assert found.code == "disk-space"
    assert "/opt/salt" in found.problem
    assert "/var" not in found.problem
    assert "128 MiB free; the update needs 288 MiB" in found.problem
    assert found.fix == "Free at least 160 MiB."
    assert [each.code for each in _space(host, {"/var": 0, "/opt": 0})] == ["disk-space"] * 2


def test_what_shares_a_file_system_needs_it_together(host):
    enough_for_one = GIB // 4 + (33 << 20)
    (found,) = _look(_with(host, statvfs=lambda path: _system(free=enough_for_one)))
    assert "/opt/salt, /var/lib/state" in found.problem


def test_what_is_written_besides_the_packages_counts(host):
    free = {"/var": GIB, "/opt": GIB}
    (found,) = _space(host, free, writes={"/var/lib/state": GIB})
    assert "/var/lib/state" in found.problem


def test_the_copies_for_the_way_back_count(host):
    """They are written next to what is downloaded, and not where it is installed."""
    free = {"/var": GIB // 2, "/opt": GIB // 2}
    assert _space(host, free) == []
    (found,) = _space(host, free, manager=Manager(needs_to_secure=GIB // 4))
    assert "/var/lib/state" in found.problem
    assert "/opt" not in found.problem


def test_a_file_system_without_room_for_files(host):
    (found,) = _look(_with(host, statvfs=lambda path: _system(files=100)))
    assert (found.code, "100 files" in found.problem) == ("disk-space", True)


def test_a_file_system_that_is_read_only(host):
    (found,) = _look(_with(host, statvfs=lambda path: _system(flag=os.ST_RDONLY)))
    assert (found.code, found.blocking) == ("read-only", True)


def test_a_real_file_system_can_be_looked_at(tmp_path):
    found = _look(
        Surroundings(indexes=(), reboot=()), state_dir=str(tmp_path / "a" / "b"), roots=()
    )
    assert [each for each in found if each.code != "disk-space"] == []


# -- versions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("master", "found"),
    [
        ("3008.3", set()),
        ("3009.0", set()),
        ("3008.10", set()),
        ("3008.3+3.gabcdef", set()),
        ("3008.1", {("master-older", False)}),
        ("3007.15", {("master-older", True)}),
        ("3006.28", {("master-older", True)}),
        (None, {("master-version-unknown", False)}),
    ],
)
def test_the_master_is_not_to_be_older(host, master, found):
    assert _codes(_look(host, master=master)) == found


def test_what_has_the_master_tell_its_version_is_one_command(host):
    (found,) = _look(host, master=None)
    assert "'salt-run safeupdate.setup' on the master" in found.fix


def test_without_a_master_it_is_not_asked_for(host):
    assert _look(host, master=None, masterless=True) == []


def test_a_target_that_is_no_version_of_salt_is_judged_no_further(host):
    manager = Manager(simulate={"mysalt": Change("7.1", "7.2")})
    uses = [Use("states", "zfs.filesystem_present")]
    assert (
        _look(host, manager, own=("mysalt",), master="3006.1", uses=uses, targets={"mysalt": "7.2"})
        == []
    )


def test_modules_that_go_are_told_with_who_brings_them_back(host):
    found = _look(
        host,
        uses=[
            Use("states", "zfs.filesystem_present"),
            Use("states", "zpool.present"),
            Use("states", "gem.installed"),
            Use("states", "file.managed"),
        ],
    )
    assert [(each.code, each.blocking) for each in found] == [
        ("module-gone", True),
        ("module-gone", True),
    ]
    by_text = {each.problem.split(" (")[0].rpartition("use ")[2]: each.fix for each in found}
    assert "zfs.filesystem_present, zpool.present" in by_text
    assert "salt-pip install saltext.zfs" in by_text["zfs.filesystem_present, zpool.present"]
    assert "No package" in by_text["gem.installed"]
    assert "3008" in found[0].problem


def test_within_a_series_no_module_goes(host):
    assert _look(host, running="3008.1", uses=[Use("states", "zfs.filesystem_present")]) == []


def test_by_policy_modules_and_extensions_are_reported_only(host):
    found = _look(
        host,
        uses=[Use("states", "zfs.filesystem_present")],
        extensions=[PICKY],
        python=14,
        extensions_policy="report",
    )
    assert _codes(found) == {("module-gone", False), ("extension-not-loadable", False)}


def test_an_extension_that_does_not_go_with_the_new_python(host):
    (found,) = _look(host, extensions=[PICKY], python=14)
    assert (found.code, found.blocking) == ("extension-not-loadable", True)
    assert "'report'" in found.fix
    assert _look(host, extensions=[PICKY], python=11) == []
    assert _look(host, extensions=[PICKY], python=None) == []


# -- the host --------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead", "found"), [(-10.0, []), (1800.0, []), (90_000.0, ["clock"])])
def test_a_clock_behind_the_index_of_packages(host, tmp_path, ahead, found):
    for name, age in (("a_Release", ahead), ("b_Release", -(10**6))):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (host.clock() + age,) * 2)
    assert [each.code for each in _look(host)] == found


@pytest.mark.parametrize("path", Surroundings().reboot)
def test_a_reboot_that_is_wanted(host, path):
    there = _with(host, exists=lambda asked: asked == path or host.exists(asked))
    (found,) = _look(there)
    assert (found.code, found.blocking, path in found.problem) == ("reboot-pending", False, True)


def test_only_what_is_rolled_back_from_is_in_the_way(host):
    assert _look(host, quarantined=[("salt-minion", "3008.1-1")]) == []
    (found,) = _look(host, quarantined=[("salt-minion", "3008.3-1")])
    assert (found.code, "salt-minion 3008.3-1" in found.problem) == ("quarantined", True)
    assert "safeupdate.unquarantine \"'3008.3-1'\"" in found.fix
    assert "salt-run safeupdate.allow \"'3008.3-1'\" everywhere=True" in found.fix
