"""What the minions of a host note of themselves."""

import json
import os
import stat

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.host import minions, processes
from saltext_safeupdate.core.host.minions import Minion


@pytest.fixture
def noted(tmp_path):
    """Return a minion whose configuration is there."""

    def make(name="salt2", **changes):
        config = tmp_path / name / "minion"
        config.parent.mkdir(exist_ok=True)
        config.touch()
        values = {"unit": "salt2", "state_dir": "/srv/state", "run_dir": "/srv/run", "id": "two"}
        return Minion(**{"config": str(config), "roots": ("/opt/salt",), **values, **changes})

    return make


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "registry")


def test_what_is_noted_is_found_and_private(directory, noted):
    one, other = noted("salt", process=processes.me()), noted(backup=("/etc/salt2",))
    for minion in (one, other, one):
        minions.register(directory, minion)
    assert sorted(minions.registered(directory), key=str) == sorted([one, other], key=str)
    assert minions.find(directory, one.config) == one
    assert minions.find(directory, "/etc/none/minion") is None
    assert (one.runs, other.runs) == (True, False)
    modes = [stat.S_IMODE(os.stat(directory).st_mode)]
    modes += [stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(directory)]
    assert modes == [0o700, 0o600, 0o600]


def test_a_minion_without_a_configuration_is_gone(directory, noted):
    minions.register(directory, minion := noted())
    # A minion may have its whole configuration in minion.d.
    os.unlink(minion.config)
    assert minions.registered(directory) == [minion]
    os.rmdir(os.path.dirname(minion.config))
    assert minions.registered(directory) == []
    assert minions.registered(f"{directory}/none") == []


def test_who_is_gone_with_its_configuration_leaves_no_note(directory, noted):
    gone, runs = noted("gone"), noted("runs", process=processes.me())
    for minion in (gone, runs, noted("other")):
        minions.register(directory, minion)
    for minion in (gone, runs):
        os.unlink(minion.config)
        os.rmdir(os.path.dirname(minion.config))
    minions.register(directory, noted("salt"))
    kept = [noted(name).config for name in ("other", "salt")]
    names = [minions.path_of(directory, config) for config in [*kept, runs.config]]
    assert sorted(os.listdir(directory)) == sorted(map(os.path.basename, names))


@pytest.mark.parametrize(
    "change",
    [
        {"config": 3},
        {"unit": ""},
        {"unit": "--now"},
        {"unit": ["salt2"]},
        {"run_dir": "run"},
        {"state_dir": "/a\0b"},
        {"roots": "/opt/salt"},
        {"roots": ["opt"]},
        {"roots": [3]},
        {"id": None},
        None,
    ],
)
def test_what_is_not_valid_does_not_count_and_is_told(directory, noted, caplog, change):
    minions.register(directory, good := noted("salt"))
    minions.register(directory, bad := noted())
    path = minions.path_of(directory, bad.config)
    value = "3" if change is None else json.dumps({**vars(bad), **change})
    with open(path, "w") as file:
        file.write(value)
    assert minions.registered(directory) == [good]
    assert path in caplog.text


def test_what_others_may_write_does_not_count(directory, noted, tmp_path):
    minions.register(directory, minion := noted())
    path = minions.path_of(directory, minion.config)
    os.chmod(path, 0o666)
    assert minions.registered(directory) == []
    os.rename(path, tmp_path / "real")
    os.chmod(tmp_path / "real", 0o600)
    os.symlink(tmp_path / "real", path)
    assert minions.registered(directory) == []


def test_what_a_newer_version_notes_besides_is_no_harm(directory, noted):
    minions.register(directory, minion := noted())
    with open(minions.path_of(directory, minion.config), "r+") as file:
        value = {**json.load(file), "colour": "blue"}
        file.seek(0)
        json.dump(value, file)
    assert minions.registered(directory) == [minion]


def test_a_directory_that_cannot_be_written_is_said_with_what_to_do(tmp_path, noted):
    (tmp_path / "registry").touch()
    with pytest.raises(SafeUpdateError, match="safeupdate:registry_dir"):
        minions.register(str(tmp_path / "registry"), noted())
