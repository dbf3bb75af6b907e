import datetime
import json
import os
import shutil
import stat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saltext_safeupdate.core.errors import InputError, RecordError
from saltext_safeupdate.core.transactional import handover, plain
from saltext_safeupdate.core.transactional.handover import Answer, Request

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.text() | st.integers() | st.booleans() | st.none()
DATA = st.recursive(
    LEAVES | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)


# A busy machine is slow, and that is no fault.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@patient
@given(DATA)
def test_data_comes_back_with_its_types(value):
    line = plain.encode(value, strict=True)
    assert b"\n" not in line
    assert repr(plain.decode(line)) == repr(value)


@patient
@given(st.text(st.characters()))
def test_lone_surrogates_come_back(text):
    assert plain.decode(plain.encode(text, strict=True)) == text


def test_a_document_like_a_tag_comes_back():
    value = {"__safeupdate__": "bytes", "data": "AAAA"}
    assert plain.decode(plain.encode(value, strict=True)) == value


def test_what_has_no_form_is_refused_or_said():
    moment = datetime.datetime(2026, 1, 2, 3, 4)
    assert plain.decode(plain.encode([moment, {3, 1}, 1j], strict=False)) == [
        "2026-01-02T03:04:00",
        [1, 3],
        "1j",
    ]
    with pytest.raises(TypeError, match="datetime"):
        plain.encode(moment, strict=True)


@pytest.mark.parametrize(
    "text", ['{"__safeupdate__": "x"}', '{"__safeupdate__": "bytes", "data": 1}', "{"]
)
def test_damaged_data_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        plain.decode(text.encode())


@pytest.fixture
def base(tmp_path):
    return tmp_path / "base"


@pytest.fixture
def directory(base):
    with handover.opened(base) as found:
        yield found


def test_request_and_answer(directory):
    request = Request(function="test.arg", args=[1, "1"], kwargs={"a": None}, shadowed=["/home"])
    directory.put_request(request)
    assert directory.request() == request
    assert (directory.begun, directory.performer(), directory.answer()) == (False, None, None)
    directory.begin()
    assert (directory.begun, directory.performer()) == (True, os.getpid())
    answer = Answer(retcode=2, value={"a": b"\0"}, vanished=["/home/x"], unseen=["/home/y"])
    directory.put_answer(answer)
    assert directory.answer() == answer
    assert (directory.path / "answer").read_bytes().count(b"\n") == 0


def test_everything_is_private(base, directory):
    directory.put_request(Request(function="x.y"))
    directory.put_program("p", "text")
    for path in (base, directory.path, directory.programs, directory.programs / "p"):
        assert path.stat().st_mode & 0o777 == 0o700
    assert (directory.path / "request").stat().st_mode & 0o777 == 0o600


def test_the_directory_is_gone_afterwards(base):
    with handover.opened(base) as found:
        assert found.path.exists()
        assert handover.sweep(base) == 0  # it is in use
    assert list(base.iterdir()) == []


def test_what_a_killed_call_left_is_swept(base):
    handover.private_directory(base)
    (base / ("a" * 32)).mkdir()
    (base / ("a" * 32) / "request").touch()
    (base / "etc-edits-1").mkdir()
    assert handover.sweep(base) == 1
    assert [path.name for path in base.iterdir()] == ["etc-edits-1"]


def test_a_result_of_another_is_not_used(directory):
    path = directory.path / "answer"
    path.write_text(json.dumps({"retcode": 0, "value": 1, "error": None, "vanished": []}))
    path.chmod(0o644)
    with pytest.raises(RecordError, match="not a private file"):
        directory.answer()
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(RecordError, match="cannot be read"):
        directory.answer()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"retcode": "0", "value": 1, "error": null, "vanished": []}',
        '{"retcode": 0, "error": null, "vanished": []}',
        '{"retcode": 0, "value": 1, "error": 5, "vanished": []}',
        '{"retcode": 0, "value": 1, "error": null, "vanished": 1}',
        "\udcff",
    ],
)
def test_a_damaged_answer_is_an_error(directory, text):
    path = directory.path / "answer"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    path.chmod(0o600)
    with pytest.raises(RecordError, match="not used"):
        directory.answer()


@pytest.mark.parametrize(
    "text", ["{}", '{"function": 1, "args": [], "kwargs": {}, "shadowed": []}']
)
def test_a_damaged_request_calls_nothing(directory, text):
    (directory.path / "request").write_text(text)
    (directory.path / "request").chmod(0o600)
    with pytest.raises(RecordError, match="nothing was called"):
        directory.request()


def test_an_argument_without_a_form_is_refused(directory):
    with pytest.raises(InputError, match="cannot be handed into the transaction"):
        directory.put_request(Request(function="x.y", args=[object()]))


@pytest.mark.parametrize(
    ("text", "status"), [("0\n", 0), ("-9\n", -9), ("7", 7), ("", None), ("x", None), ("1 2", None)]
)
def test_exit_status(directory, text, status):
    directory.status.write_text(text)
    directory.status.chmod(0o600)
    assert directory.exit_status() == status


def test_wishes_that_cannot_be_read_are_left_out(directory):
    directory.wishes.write_text('{"action": "reboot"}\n{\n[]\n{"action": 1}\n')
    directory.wishes.chmod(0o600)
    assert directory.wish_list() == [{"action": "reboot"}]


def test_a_base_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(RecordError, match="0700"):
        handover.private_directory(tmp_path / "open")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(RecordError, match="0700"):
        handover.private_directory(tmp_path / "link")
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="cannot be made"):
        handover.private_directory(tmp_path / "file" / "x")


def test_a_full_disk_is_an_error_before_anything_happens(base, monkeypatch):
    handover.private_directory(base)

    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(base), "mkdir", full)
    with pytest.raises(RecordError, match="No space left on device"), handover.opened(base):
        pass


def test_a_lock_that_cannot_be_opened(base):
    with pytest.raises(RecordError, match="nothing was changed"):
        handover.open_lock(base)


def test_modes_hold_whatever_the_umask(tmp_path):
    old = os.umask(0)
    try:
        with handover.opened(tmp_path / "b") as found:
            found.put_request(Request(function="x.y"))
            modes = [
                stat.S_IMODE(path.stat().st_mode) for path in (found.path, found.path / "request")
            ]
    finally:
        os.umask(old)
    assert modes == [0o700, 0o600]


def test_a_directory_that_was_swept_before_it_was_locked_is_made_anew(base, monkeypatch):
    real, swept = handover.fcntl.flock, []

    def flock(fd, how):
        if not swept:
            swept.append([path.name for path in base.iterdir()])
            shutil.rmtree(next(base.iterdir()))
        real(fd, how)

    monkeypatch.setattr(handover.fcntl, "flock", flock)
    with handover.opened(base) as found:
        found.put_request(Request(function="x.y"))
        assert found.path.name not in swept[0]


def test_what_a_killed_function_left_is_no_answer(directory):
    """It was killed while it wrote; the next process of the call may still say what happened."""
    (directory.path / "answer.new").write_text('{"retcode": 0, "value": 1')
    assert directory.answer() is None
    directory.put_answer(Answer(retcode=1, error="killed"))
    assert directory.answer().error == "killed"
