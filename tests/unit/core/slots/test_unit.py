import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError, SafeUpdateError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.slots.unit import SlotUnit

PROGRAM = "/var/lib/slots/minions/salt-minion/active/bin/salt-minion"


class Systemd:
    """systemd, as far as it starts one unit: it reads what is on the disk when it is told to."""

    def __init__(self, units, argv="/usr/bin/salt-minion"):
        self._drop_ins = units / "salt-minion.service.d"
        self._base = argv
        self.behind = ""
        self.reloads = 0
        self.argv = argv

    def __call__(self, argv, *, timeout, **_):
        if argv[1] == "daemon-reload":
            self.reloads += 1
            self._read()
            return self._result(argv, "")
        assert argv == ("systemctl", "show", "--property=ExecStart", "--", "salt-minion.service")
        path = self.argv.partition(" ")[0]
        shown = f"{{ path={path} ; argv[]={self.argv} ; ignore_errors=no ; start_time=[n/a] }}"
        return self._result(argv, f"ExecStart={shown}\n" if self.argv else "ExecStart=\n")

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
    ["/usr/bin/salt-minion --x 'a b'", "/usr/bin/salt-minion $OPTIONS", "/u/s a\\x20b", "/u %n"],
)
def test_arguments_that_mean_more_than_they_show_are_not_guessed(units, argv):
    unit = SlotUnit("salt-minion", PROGRAM, run=Systemd(units, argv), units=str(units))
    with pytest.raises(SafeUpdateError, match=r"cannot be taken over.*Nothing was changed"):
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
