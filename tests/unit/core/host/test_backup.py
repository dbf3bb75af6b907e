import contextlib
import json
import os
import shutil
import socket
import stat

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError, VerificationError
from saltext_safeupdate.core.host import backup, backup_paths, file_state
from saltext_safeupdate.core.host.files import anchored

SECRET = "-----BEGIN RSA PRIVATE KEY-----"


@pytest.fixture
def etc(tmp_path):
    """Return a configuration with all that a backup has to restore."""
    root = tmp_path / "etc" / "salt"
    (root / "minion.d").mkdir(parents=True)
    (root / "pki" / "minion").mkdir(parents=True, mode=0o700)
    (root / "minion").write_text("master: salt\n")
    (root / "minion").chmod(0o640)
    (root / "minion.d" / "_schedule.conf").write_text("schedule: {}\n")
    (root / "minion.d" / "site.conf").symlink_to("/srv/site.conf")
    (root / "pki" / "minion" / "minion.pem").write_text(SECRET)
    (root / "pki" / "minion" / "minion.pem").chmod(0o400)
    os.utime(root / "minion", ns=(10**18, 10**18))
    return root


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state"


def _picture(root):
    """Return everything below *root* that has to be as it was."""
    found = {}
    for directory, names, files in os.walk(root):
        for name in (*names, *files, "."):
            path = os.path.normpath(os.path.join(directory, name))
            is_ = os.lstat(path)
            content = None
            if stat.S_ISLNK(is_.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(is_.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            found[path] = (is_.st_mode, is_.st_uid, is_.st_gid, is_.st_mtime_ns, content)
    return found


def test_everything_is_put_back_exactly_and_told(etc, state):
    before = _picture(etc)
    manifest = backup.save([str(etc)], str(state / "backup-1"))
    (etc / "minion").write_text("master: elsewhere\n")
    (etc / "minion").chmod(0o666)
    (etc / "minion.d" / "site.conf").unlink()
    (etc / "minion.d" / "_schedule.conf").unlink()
    (etc / "minion.d" / "_schedule.conf").mkdir()
    (etc / "minion.d" / "new.conf").write_text("of the new version")
    (etc / "pki" / "minion" / "minion.pem").unlink()
    (etc / "pki" / "minion").rmdir()
    restored = backup.restore(manifest)
    assert _picture(etc) == before
    assert set(restored.written) == {
        str(etc / "minion"),
        str(etc / "minion.d" / "site.conf"),
        str(etc / "minion.d" / "_schedule.conf"),
        str(etc / "pki" / "minion"),
        str(etc / "pki" / "minion" / "minion.pem"),
    }
    assert restored.removed == (str(etc / "minion.d" / "new.conf"),)


def test_the_linked_copies_of_the_code_are_no_part_of_it(etc, state):
    copy = etc / ".salt-safeupdate-g1.2.3-salt"
    copy.mkdir()
    (copy / "a.py").touch()
    manifest = backup.save([str(etc)], str(state))
    assert not any(str(copy) in entry.path for entry in manifest.entries)
    (copy / "b.py").touch()
    assert backup.restore(manifest).removed == ()
    assert (copy / "b.py").exists()


def test_where_nothing_has_changed_nothing_is_touched(etc, state):
    manifest = backup.save([str(etc)], str(state / "b"))
    inode = os.stat(etc / "minion").st_ino
    assert backup.restore(manifest) == backup.Restored()
    assert os.stat(etc / "minion").st_ino == inode


def test_what_was_not_there_goes_again(etc, state):
    cached = etc.parent / "grains.cache.p"
    manifest = backup.save([str(cached)], str(state / "b"))
    cached.write_text("of the new version")
    assert backup.restore(manifest).removed == (str(cached),)
    assert not cached.exists()


def test_a_path_that_is_a_link_brings_what_it_leads_to(etc, state, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(etc / "minion.d")
    manifest = backup.save([str(link)], str(state / "b"))
    link.unlink()
    (etc / "minion.d" / "_schedule.conf").write_text("x")
    backup.restore(manifest)
    assert os.readlink(link) == str(etc / "minion.d")
    assert (etc / "minion.d" / "_schedule.conf").read_text() == "schedule: {}\n"


def test_a_path_below_another_is_kept_once(etc, state):
    manifest = backup.save([str(etc), str(etc / "pki"), str(etc)], str(state / "b"))
    assert manifest.roots == (str(etc),)
    assert len({entry.path for entry in manifest.entries}) == len(manifest.entries)


def test_the_copies_are_nobody_elses_to_read(etc, state):
    backup.save([str(etc)], str(state / "b"))
    for directory, _, files in os.walk(state / "b"):
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        for name in files:
            assert stat.S_IMODE(os.stat(os.path.join(directory, name)).st_mode) == 0o600


def test_contents_are_in_no_manifest_message_or_log(etc, state, caplog):
    caplog.set_level("DEBUG")
    manifest = backup.save([str(etc)], str(state / "b"))
    assert SECRET not in (state / "b" / "manifest.json").read_text()
    for copy in (state / "b" / "files").iterdir():
        copy.write_text(copy.read_text() + "damaged")
    with pytest.raises(VerificationError) as error:
        backup.restore(manifest)
    assert SECRET not in str(error.value) + caplog.text


def test_a_damaged_copy_stops_before_anything_is_changed(etc, state):
    manifest = backup.save([str(etc)], str(state / "b"))
    (etc / "minion").write_text("changed")
    pem = str(etc / "pki" / "minion" / "minion.pem")
    (entry,) = (entry for entry in manifest.entries if entry.path == pem)
    (state / "b" / "files" / entry.content).unlink()
    with pytest.raises(VerificationError, match=r"minion\.pem .* Nothing was restored"):
        backup.restore(manifest)
    assert (etc / "minion").read_text() == "changed"


def test_a_finished_backup_is_not_made_again(etc, state):
    first = backup.save([str(etc)], str(state / "b"))
    (etc / "minion").write_text("of the new version")
    assert backup.save([str(etc)], str(state / "b")) == first
    backup.restore(first)
    assert (etc / "minion").read_text() == "master: salt\n"


class _Cut(BaseException):
    """The power, at a write."""


@pytest.mark.parametrize("at", range(1, 6))
def test_a_backup_that_was_cut_is_recognised_and_made_anew(etc, state, monkeypatch, at):
    real, calls = os.fsync, []

    def cut(fd):
        calls.append(fd)
        if len(calls) == at:
            raise _Cut
        real(fd)

    monkeypatch.setattr(os, "fsync", cut)
    with pytest.raises(_Cut):
        backup.save([str(etc)], str(state / "b"))
    with pytest.raises(VerificationError, match="incomplete"):
        backup.load(str(state / "b"))
    monkeypatch.setattr(os, "fsync", real)
    assert backup.load(backup.save([str(etc)], str(state / "b")).directory).roots == (str(etc),)


@pytest.mark.parametrize("count", [10, 1000])
def test_many_files_are_synced_together(etc, state, monkeypatch, count):
    """A master has a key for each of its minions."""
    keys = etc / "pki" / "minions"
    keys.mkdir()
    for number in range(count):
        (keys / f"web{number}").write_text("key")
    real, calls = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(fd), real(fd)))
    manifest = backup.save([str(etc)], str(state / "b"))
    assert len(calls) < 30
    for path in keys.iterdir():
        path.unlink()
    calls.clear()
    assert len(backup.restore(manifest).written) == count
    assert len(calls) < 30
    assert {path.read_text() for path in keys.iterdir()} == {"key"}
    assert len(list(keys.iterdir())) == count


def test_the_manifest_is_the_last_that_is_written(etc, state, monkeypatch):
    def check(path, content):
        names = sorted(os.listdir(state / "b" / "files"))
        told = sorted(e["content"] for e in json.loads(content)["entries"] if e["digest"])
        assert names == told
        written.append(path)

    written = []
    monkeypatch.setattr(backup, "write_atomic", check)
    backup.save([str(etc)], str(state / "b"))
    assert written == [str(state / "b" / "manifest.json")]


def test_a_manifest_that_is_rubbish_is_an_error(etc, state):
    backup.save([str(etc)], str(state / "b"))
    (state / "b" / "manifest.json").write_text("{")
    with pytest.raises(VerificationError, match="cannot be read"):
        backup.load(str(state / "b"))


def test_a_restore_that_was_cut_is_done_again(etc, state, monkeypatch):
    before = _picture(etc)
    manifest = backup.save([str(etc)], str(state / "b"))
    (etc / "minion").write_text("x")
    (etc / "pki" / "minion" / "minion.pem").unlink()
    real = os.replace

    def cut(*_):
        raise _Cut

    monkeypatch.setattr(os, "replace", cut)
    with pytest.raises(_Cut):
        backup.restore(manifest)
    monkeypatch.setattr(os, "replace", real)
    backup.restore(manifest)
    assert _picture(etc) == before


def test_no_space_is_an_error_that_says_what_is_safe(etc, state, monkeypatch):
    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SafeUpdateError, match=r"No space left .* Nothing was changed"):
        backup.save([str(etc)], str(state / "b"))


@pytest.fixture
def vanishing(etc, monkeypatch):
    """Have a master, which runs, remove a key, and a directory, after they were listed."""
    pki = etc / "pki" / "master"
    for name in ("minions_pre", "minions"):
        (pki / name).mkdir(parents=True)
    for path in ("minions_pre/web1", "minions/web2", "minions/web3"):
        (pki / path).write_text("key")
    listdir = os.listdir

    def listed(path):
        found = listdir(path)
        if str(path) == str(pki / "minions"):
            (pki / "minions" / "web2").unlink(missing_ok=True)
        if str(path) == str(pki):
            shutil.rmtree(pki / "minions_pre", ignore_errors=True)
        return found

    lstat = os.lstat

    def looked_at(path, *args, **kwargs):
        found = lstat(path, *args, **kwargs)
        if str(path) == str(pki / "minions" / "web3"):
            (pki / "minions" / "web3").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(os, "listdir", listed)
    monkeypatch.setattr(os, "lstat", looked_at)
    return pki


def test_what_vanishes_meanwhile_keeps_nothing_from_being_backed_up(etc, state, vanishing):
    manifest = backup.save([str(etc)], str(state / "b"))
    kept = {entry.path for entry in manifest.entries}
    assert {str(etc / "minion"), str(etc / "pki" / "minion" / "minion.pem")} <= kept
    assert not [path for path in kept if "web" in path]
    assert backup.load(manifest.directory) == manifest


def test_what_vanishes_meanwhile_has_no_size(etc, vanishing):
    assert backup.size([str(etc)]) > 0


def test_what_vanishes_meanwhile_is_noted_as_not_there(etc, state, vanishing):
    manifest = backup.Manifest(directory=str(state), roots=(str(etc),), entries=())
    backup.mark(manifest)
    left = json.loads((state / "left.json").read_text())
    assert str(etc / "minion") in left
    assert not [path for path in left if "web" in path]


def test_copies_that_vanish_are_no_backup(etc, state, monkeypatch):
    """Somebody else removes them, while they are made: then there is none."""
    listdir = os.listdir

    def listed(path):
        shutil.rmtree(state / "b" / "files", ignore_errors=True)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", listed)
    with pytest.raises(SafeUpdateError, match="Nothing was changed"):
        backup.save([str(etc)], str(state / "b"))


def test_a_socket_is_left_out(etc, state):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(etc / "s.ipc"))
        manifest = backup.save([str(etc)], str(state / "b"))
        backup.restore(manifest)
        assert (etc / "s.ipc").exists()
    assert str(etc / "s.ipc") not in {entry.path for entry in manifest.entries}


def test_the_size_is_about_what_the_files_take(etc):
    (etc / "big").write_bytes(b"x" * 100_000)
    assert 100_000 <= backup.size([str(etc)]) < 150_000
    assert backup.size([str(etc / "none")]) == 0


def test_what_is_kept_of_a_minion():
    assert backup_paths.of_minion(
        config_file="/etc/salt/minion",
        pki_dir="/etc/salt/pki/minion",
        cache_dir="/var/cache/salt/minion",
    ) == [
        "/etc/salt/minion",
        "/etc/salt/minion.d",
        "/etc/salt/minion_id",
        "/etc/salt/grains",
        "/etc/salt/pki/minion",
        "/var/cache/salt/minion/grains.cache.p",
    ]


# A user that nothing else runs as.
THEM = 60999


@pytest.fixture
def theirs(tmp_path):
    """A directory of another user, such as that of the keys of a master."""
    if os.geteuid() != 0:
        pytest.skip("only root writes into directories of others")
    tmp_path.chmod(0o755)
    place = tmp_path / "pki" / "minions"
    place.mkdir(parents=True)
    (place / "evil.sh").write_text("evil")
    for path in (place.parent, place, place / "evil.sh"):
        os.chown(path, THEM, THEM)
    return place


def _lead(place, aim, owner):
    place.rename(place.with_name("away"))
    place.symlink_to(aim)
    os.chown(place, owner, owner, follow_symlinks=False)


@pytest.mark.parametrize("changed", [True, False], ids=["changed by the update", "left alone"])
def test_nobody_leads_root_elsewhere_in_a_directory_of_theirs(theirs, state, tmp_path, changed):
    """
    Between the update and the rollback, its owner puts a link in the place of a directory.

    | What was in it | Root writes where the link leads |
    | --- | --- |
    | was changed by the update, such as its group | no |
    | was left alone | no |
    """
    (tmp_path / "aim").mkdir()
    manifest = backup.save([str(theirs.parent)], str(state / "before"))
    if changed:
        os.chown(theirs / "evil.sh", THEM, 0)
    backup.mark(manifest)
    _lead(theirs, tmp_path / "aim", THEM)
    present = backup.save([str(theirs.parent)], str(state / "present"))
    with contextlib.suppress(SafeUpdateError):
        backup.restore(manifest, present=present, keep=[str(theirs.parent)])
    assert os.listdir(tmp_path / "aim") == []


@pytest.mark.parametrize("kind", [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo])
def test_what_is_no_file_any_more_is_not_read(tmp_path, kind):
    """Neither what a link leads to, nor a pipe, which would have root wait."""
    kind(tmp_path / "was_a_file")
    with pytest.raises(OSError, match=r"no regular file|symbolic links"):
        file_state.digest(str(tmp_path / "was_a_file"))


@pytest.mark.parametrize(("owner", "followed"), [(THEM, False), (0, True)])
def test_only_links_of_root_are_followed(theirs, tmp_path, owner, followed):
    (tmp_path / "aim").mkdir()
    (tmp_path / "aim" / "file").write_text("there")
    _lead(theirs, "../aim", owner)
    path = str(theirs / "file")
    if not followed:
        with pytest.raises(OSError, match="a link of another user"), anchored(path):
            pass
        return
    with anchored(path) as place:
        theirs.unlink()
        (theirs.parent / "away").rename(theirs)
        with open(place) as file:
            assert file.read() == "there"
