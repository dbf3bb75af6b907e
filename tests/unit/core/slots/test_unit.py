import os
import pathlib
import re

import pytest

from saltext_safeupdate.core.errors import CommandError, SafeUpdateError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.slots.unit import SlotUnit

# By what stands before a program.
FLAGS = {
    "-": "ignore-failure",
    r"\+": "privileged",
    "(?<!!)!(?!!)": "no-setuid",
    "!!": "ambient",
    ":": "no-env-expand",
    r"\|": "via-shell",
}
PROGRAM = "/var/lib/slots/minions/salt-minion/active/bin/salt-minion"


class Systemd:
    """
    systemd, as far as it starts one unit: it reads what is on the disk when it is told to.

    *old* has no flags (before version 243).
    """

    def __init__(self, units, argv="/usr/bin/salt-minion", old=False):
        self._drop_ins = units / "salt-minion.service.d"
        self._base = argv
        self.behind = ""
        self.reloads = 0
        self.argv = argv
        self._old = old

    def __call__(self, argv, *, timeout, **_):
        if argv[1] == "daemon-reload":
            self.reloads += 1
            self._read()
            return self._result(argv, "")
        name = argv[2].removeprefix("--property=")
        assert argv == ("systemctl", "show", f"--property={name}", "--", "salt-minion.service")
        if name == "ExecStartEx" and self._old:
            return self._result(argv, "")
        return self._result(argv, f"{name}={self._shown(name) if self.argv else ''}\n")

    def _shown(self, name):
        word, _, rest = self.argv.partition(" ")
        prefixes, path = re.fullmatch(r"([-:+!@|]*)(.*)", word).groups()
        words = rest if "@" in prefixes else f"{path} {rest}".rstrip()
        told = [flag for sign, flag in FLAGS.items() if re.search(sign, prefixes)]
        ignored = "yes" if "-" in prefixes else "no"
        how = f"ignore_errors={ignored}" if name == "ExecStart" else f"flags={' '.join(told)}"
        return f"{{ path={path} ; argv[]={words} ; {how} ; start_time=[n/a] ; pid=0 }}"

    def _read(self):
        self.argv = self._base
        for path in sorted(self._drop_ins.glob("*.conf")):
            for line in path.read_text().splitlines():
                if line.startswith("ExecStart="):
                    self.argv = line.partition("=")[2].replace('"', "")
        self.argv = self.behind or self.argv

    def _result(self, argv, stdout):
        return Result(argv=argv, returncode=0, stdout=stdout, stderr="")


@pytest.fixture
def units(tmp_path):
    return tmp_path / "units"


@pytest.fixture
def systemd(units):
    return Systemd(units)


@pytest.fixture
def unit(units, systemd):
    return SlotUnit("salt-minion", PROGRAM, run=systemd, units=str(units))


def test_the_unit_starts_the_program_of_the_slot_and_again_its_own(unit, units, systemd):
    assert unit.program == "/usr/bin/salt-minion"
    unit.follow()
    assert systemd.argv == PROGRAM
    assert os.stat(unit.drop_in).st_mode & 0o777 == 0o644
    unit.leave()
    assert systemd.argv == "/usr/bin/salt-minion"
    assert list(units.iterdir()) == []


def test_its_arguments_stay(units):
    systemd = Systemd(units, "/usr/bin/salt-minion -c /etc/salt2 --log-level=info")
    unit = SlotUnit("salt-minion.service", PROGRAM, run=systemd, units=str(units))
    for _ in range(2):
        unit.follow()
        assert systemd.argv == f"{PROGRAM} -c /etc/salt2 --log-level=info"


@pytest.mark.parametrize("prefixes", ["-", "+", "!", "!!", "-:", "-+", ":", "|", "-@", "@"])
def test_what_stands_before_the_program_stays(units, prefixes):
    name = " minion" if "@" in prefixes else ""
    systemd = Systemd(units, f"{prefixes}/usr/bin/salt-minion{name} -c /etc/salt2")
    unit = SlotUnit("salt-minion", PROGRAM, run=systemd, units=str(units))
    assert unit.program == "/usr/bin/salt-minion"
    for _ in range(2):
        unit.follow()
        before, _, after = systemd.argv.partition(PROGRAM)
        assert (sorted(before), after) == (sorted(prefixes), f"{name} -c /etc/salt2")
    unit.leave()
    assert unit.program == "/usr/bin/salt-minion"


def test_an_older_systemd_tells_only_whether_errors_are_ignored(units):
    systemd = Systemd(units, "-/usr/bin/salt-minion", old=True)
    SlotUnit("salt-minion", PROGRAM, run=systemd, units=str(units)).follow()
    assert systemd.argv == f"-{PROGRAM}"


def test_a_way_to_start_it_that_is_not_known_is_not_dropped(units, monkeypatch):
    monkeypatch.setitem(FLAGS, "-", "of-the-future")
    unit = SlotUnit("salt-minion", PROGRAM, run=Systemd(units, "-/u/salt-minion"), units=str(units))
    with pytest.raises(SafeUpdateError, match=r"'of-the-future'.*Nothing was changed"):
        unit.follow()
    assert not units.exists()


def test_again_systemd_is_not_told_again(unit, systemd):
    unit.follow()
    unit.follow()
    assert systemd.reloads == 1
    unit.leave()
    unit.leave()
    assert systemd.reloads == 2


@pytest.mark.parametrize("way", ["follow", "leave"])
def test_whoever_died_before_systemd_was_told_is_made_up_for(unit, units, systemd, way):
    unit.follow()
    if way == "follow":
        systemd.argv = "/usr/bin/salt-minion"
    else:
        pathlib.Path(unit.drop_in).unlink()
    getattr(unit, way)()
    assert systemd.argv == (PROGRAM if way == "follow" else "/usr/bin/salt-minion")


@pytest.mark.parametrize(
    "argv",
    ["--x 'a b'", "$OPTIONS", "a\\x20b", "%n"],
)
def test_arguments_that_mean_more_than_they_show_are_not_guessed(units, argv):
    argv = f"/usr/bin/salt-minion {argv}"
    unit = SlotUnit("salt-minion", PROGRAM, run=Systemd(units, argv), units=str(units))
    with pytest.raises(SafeUpdateError, match=r"cannot be taken over.*Nothing was changed"):
        unit.follow()
    assert not units.exists()


@pytest.mark.parametrize("path", ["/usr/bin/python3 /usr/bin/salt-minion", "/bin/sh -c x"])
def test_a_unit_that_starts_something_else_is_not_taken_over(units, path):
    """Its arguments would be those of a minion."""
    unit = SlotUnit("salt-minion", PROGRAM, run=Systemd(units, path), units=str(units))
    with pytest.raises(SafeUpdateError, match=r"and not the program salt-minion.*Nothing was"):
        unit.follow()
    assert not units.exists()


def test_a_unit_that_starts_nothing_is_refused(units):
    unit = SlotUnit("salt-minion", PROGRAM, run=Systemd(units, ""), units=str(units))
    with pytest.raises(SafeUpdateError, match="does not start one program"):
        unit.follow()


def test_a_drop_in_of_somebody_else_behind_it_is_told(unit, units, systemd):
    systemd.behind = "/opt/other"
    with pytest.raises(CommandError, match="still starts /opt/other: look for a drop-in behind"):
        unit.follow()
    assert not unit.follows
    assert list(units.iterdir()) == [], "ours is of no use then"
