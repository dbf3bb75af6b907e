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
        # The file of the unit, if there is one; what it starts is not read from there.
        self.fragment = ""
        self.behind = ""
        self.reloads = 0
        self.argv = argv
        self._old = old

    def __call__(self, argv, *, timeout, **_):
        if argv[1] == "daemon-reload":
            self.reloads += 1
            self._read()
            return self._result(argv, "")
        if "--property=FragmentPath" in argv:
            found = sorted(map(str, self._drop_ins.glob("*.conf")))
            told = f"FragmentPath={self.fragment}\nDropInPaths={' '.join(found)}\n"
            return self._result(argv, told)
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


def test_a_program_whose_path_has_a_blank_is_told(units):
    shown = "{ path=/my salt/salt-minion ; argv[]=/my salt/salt-minion -d ; flags= ; pid=0 }"

    def run(argv, *, timeout):
        return Result(argv=argv, returncode=0, stdout=f"ExecStartEx={shown}\n", stderr="")

    unit = SlotUnit("salt-minion", PROGRAM, run=run, units=str(units))
    assert (unit.program, unit.arguments) == ("/my salt/salt-minion", ["-d"])


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
    with pytest.raises(SafeUpdateError, match=r"cannot be copied into a drop-in.*Nothing was"):
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
    with pytest.raises(SafeUpdateError, match="does not start exactly one program"):
        unit.follow()


def test_a_drop_in_of_somebody_else_behind_it_is_told(unit, units, systemd):
    systemd.behind = "/opt/other"
    with pytest.raises(CommandError, match="still starts /opt/other: look for a drop-in after"):
        unit.follow()
    assert not unit.follows
    assert list(units.iterdir()) == [], "ours is of no use then"


# -- a unit that changes while it follows a slot -------------------------------------------------

FILE = """\
[Unit]
ExecStart=/usr/bin/nothing
[Service]
# ExecStart=/usr/bin/salt-minion -x
{}
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture
def changed(unit, systemd, tmp_path):
    """Have the unit, which follows its slot, start something else by now."""

    def change(line, **drop_ins):
        unit.follow()
        systemd.fragment = str(tmp_path / "salt-minion.service")
        pathlib.Path(systemd.fragment).write_text(FILE.format(line))
        for name, text in drop_ins.items():
            (pathlib.Path(unit.drop_in).parent / f"{name}.conf").write_text(text)
        unit.follow()
        return systemd.argv

    return change


@pytest.mark.parametrize(
    ("line", "started"),
    [
        ("ExecStart=/usr/bin/salt-minion", PROGRAM),
        ("ExecStart=/usr/bin/salt-minion -c /etc/salt2", f"{PROGRAM} -c /etc/salt2"),
        ("ExecStart = -/usr/bin/salt-minion  -d", f"-{PROGRAM} -d"),
        ("ExecStart=/usr/bin/salt-minion \\\n# here\n  -d", f"{PROGRAM} -d"),
        ("ExecStart=/a\nExecStart=\nExecStart=/usr/bin/salt-minion -d", f"{PROGRAM} -d"),
    ],
)
def test_arguments_that_a_unit_has_got_since_come_along(changed, systemd, unit, line, started):
    assert changed(line) == started
    reloads = systemd.reloads
    unit.follow()
    assert systemd.reloads == reloads


def test_so_do_those_of_a_drop_in_of_somebody_else(changed):
    other = "[Service]\nExecStart=\nExecStart=/usr/bin/salt-minion --log-level=info\n"
    found = changed("ExecStart=/usr/bin/salt-minion -d", **{"30-other": other})
    assert found == f"{PROGRAM} --log-level=info"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ExecStart=/usr/bin/salt-minion -c %h/etc",
        "ExecStart=/usr/bin/salt-minion 'a b'",
        "ExecStart=/usr/bin/salt-minion ; /bin/true",
        "ExecStart=/usr/bin/salt-minion\nExecStart=/bin/true",
        "ExecStart=/usr/bin/wrapper -d",
    ],
)
def test_what_cannot_be_told_by_its_files_stays_as_it_was(changed, line):
    assert changed(line) == PROGRAM


def test_a_unit_whose_files_cannot_be_read_stays_as_it_was(unit, systemd):
    unit.follow()
    systemd.fragment = "/none/salt-minion.service"
    unit.follow()
    assert systemd.argv == PROGRAM


def test_where_no_drop_in_can_be_written_a_unit_is_not_taken_over(unit, units, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(SafeUpdateError, match=r"cannot be written\. Nothing was changed"):
        unit.check()
    unit.follow()
    unit.check()


def test_a_slot_that_is_not_where_slots_are_now_is_told(unit, units, systemd):
    """Somebody has changed 'slots_dir' while a slot is active."""
    unit.follow()
    assert unit.elsewhere == ""
    moved = PROGRAM.replace("/var/lib", "/srv")
    unit = SlotUnit("salt-minion", moved, run=systemd, units=str(units))
    assert unit.elsewhere == PROGRAM
    with pytest.raises(SafeUpdateError, match=r"not below 'safeupdate:slots_dir'.*Nothing was"):
        unit.check()
    systemd.behind = "/usr/bin/salt-minion"
    systemd(("systemctl", "daemon-reload"), timeout=1)
    assert unit.elsewhere == "", "what another drop-in starts is no slot"


def test_what_it_starts_without_a_slot_is_told_by_its_files(changed, unit, systemd):
    assert unit.named == "/usr/bin/salt-minion"
    changed("ExecStart=/opt/salt/salt-minion -d")
    assert unit.named == "/opt/salt/salt-minion"
    changed("ExecStart=/opt/%H/salt-minion")
    assert unit.named == ""


def test_a_boot_waits_for_the_file_system_of_the_slots(unit):
    """One that is mounted late: without it, the minion failed, and nothing started it again."""
    unit.follow()
    assert f"\nRequiresMountsFor={PROGRAM}\n" in pathlib.Path(unit.drop_in).read_text()


def test_a_drop_in_of_before_is_written_anew_and_read(unit, systemd):
    unit.follow()
    path = pathlib.Path(unit.drop_in)
    path.write_text("".join(line for line in path.open() if "Mounts" not in line))
    before = systemd.reloads
    unit.follow()
    assert ("RequiresMountsFor=" in path.read_text(), systemd.reloads) == (True, before + 1)
