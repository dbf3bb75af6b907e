"""The unit that a minion's process is found to be in."""

import pytest

from saltext_safeupdate.core.host import own_unit

MINION = "/opt/saltstack/salt/bin/python3.10\0/usr/bin/salt-minion\0"
V1 = "12:pids:/system.slice/x.service\n1:name=systemd:/system.slice/{}.service\n"


@pytest.fixture
def proc(tmp_path):
    def make(*chain):
        """Lay out processes, each the child of the next, by their cgroup and their words."""
        for pid, (cgroup, words) in enumerate(chain):
            (tmp_path / str(pid)).mkdir()
            (tmp_path / str(pid) / "cgroup").write_text(cgroup)
            (tmp_path / str(pid) / "cmdline").write_text(words)
        return own_unit.of_processes(range(len(chain)), str(tmp_path))

    return make


@pytest.mark.parametrize(
    "unit", ["salt-minion", "venv-salt-minion", "salt-minion2", "salt-minion@two", "salt2"]
)
@pytest.mark.parametrize("text", ["0::/system.slice/{}.service\n", V1])
def test_a_minion_is_in_its_unit_and_so_are_its_jobs(proc, unit, text):
    cgroup = text.format(unit)
    assert proc((cgroup, "python3\0-c\0..."), (cgroup, MINION), (cgroup, MINION)) == unit


@pytest.mark.parametrize(
    "chain",
    [
        [],
        [("0::/\n", MINION)],
        [("", MINION)],
        [("0::/user.slice/user-0.slice/session-3.scope\n", MINION)],
        [("0::/user.slice/user-0.slice/user@0.service/app.slice/salt.service\n", MINION)],
        # Not what runs the minion, but what started it.
        [("0::/system.slice/cron.service\n", MINION)],
        [("0::/system.slice/salt-master.service\n", MINION)],
        # No minion at all.
        [("0::/system.slice/salt-updater.service\n", "/usr/bin/salt-call\0test.ping\0")],
        [
            ("0::/system.slice/salt-updater.service\n", "/usr/bin/salt-call\0test.ping\0"),
            ("0::/system.slice/salt-minion.service\n", MINION),
        ],
    ],
)
def test_elsewhere_it_is_not_known(proc, chain):
    assert proc(*chain) == ""
