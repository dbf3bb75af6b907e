import hashlib

import pytest

from saltext_safeupdate.core.errors import CommandError, VerificationError
from saltext_safeupdate.core.packages import files
from saltext_safeupdate.core.packages.files import store_file, verify_files
from saltext_safeupdate.core.packages.request import File


def _show(path):
    return "a", "1"


def test_a_file_that_is_kept_is_private_and_known_by_its_hash(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "a_1.deb").write_bytes(b"content")
    file = store_file(str(scratch / "a_1.deb"), str(tmp_path), "a", "1")
    assert file == File("a", "1", str(tmp_path / "a_1.deb"), hashlib.sha256(b"content").hexdigest())
    assert (tmp_path / "a_1.deb").stat().st_mode & 0o777 == 0o600
    assert list(scratch.iterdir()) == []
    verify_files([file], _show)


def test_what_is_not_as_it_was_recorded_is_named(tmp_path):
    (tmp_path / "a_1.deb").write_bytes(b"content")
    file = store_file(str(tmp_path / "a_1.deb"), str(tmp_path), "a", "1")

    def broken(path):
        raise CommandError(("dpkg-deb",), "exit status 2")

    with pytest.raises(VerificationError, match=r"a_1\.deb is a 1, not a 2\. Nothing was inst"):
        verify_files([file._replace(version="2")], _show)
    with pytest.raises(VerificationError, match=r"a_1\.deb is no package \(exit status 2\)"):
        verify_files([file], broken)
    (tmp_path / "a_1.deb").write_bytes(b"contents")
    with pytest.raises(VerificationError, match=r"a_1\.deb has changed"):
        verify_files([file], _show)
    (tmp_path / "a_1.deb").unlink()
    with pytest.raises(VerificationError, match=r"a_1\.deb cannot be read \(No such file"):
        verify_files([file], _show)


def test_a_file_is_read_once_as_long_as_nobody_has_written_to_it(tmp_path, monkeypatch):
    (tmp_path / "a_1.deb").write_bytes(b"content")
    read = []
    plain, now = files._digest, files.time.time_ns
    monkeypatch.setattr(files.time, "time_ns", lambda: now() + 10**9)
    monkeypatch.setattr(files, "_digest", lambda *given: read.append(given) or plain(*given))
    file = store_file(str(tmp_path / "a_1.deb"), str(tmp_path), "a", "1")
    verify_files([file], _show)
    verify_files([file], _show)
    assert len(read) == 1
    (tmp_path / "a_1.deb").write_bytes(b"altered content")
    with pytest.raises(VerificationError, match=r"a_1\.deb has changed"):
        verify_files([file], _show)


def test_a_write_at_the_time_of_the_write_before_is_seen(tmp_path, monkeypatch):
    (tmp_path / "a_1.deb").write_bytes(b"content")
    file = store_file(str(tmp_path / "a_1.deb"), str(tmp_path), "a", "1")
    # As if the clock of the file system had not gone on since.
    now = (tmp_path / "a_1.deb").stat().st_ctime_ns
    monkeypatch.setattr(files.time, "time_ns", lambda: now)
    monkeypatch.setattr(files, "_stamp", lambda _: (now,))
    verify_files([file], _show)
    (tmp_path / "a_1.deb").write_bytes(b"another")
    with pytest.raises(VerificationError, match=r"a_1\.deb has changed"):
        verify_files([file], _show)
