import os
import sys

import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.transactional import handover, inside
from saltext_safeupdate.core.transactional.handover import Request
from saltext_safeupdate.core.transactional.programs import witness

from . import captured


@pytest.fixture
def directory(tmp_path):
    with handover.opened(tmp_path / "base") as found:
        yield found


@pytest.fixture
def environ():
    return {"TRANSACTIONAL_UPDATE": "true", "PATH": "/usr/bin"}


def perform(directory, environ, function, name="x.y", args=(), kwargs=None, context=None):
    directory.put_request(Request(function="x.y", args=args, kwargs=kwargs or {}))
    context = {} if context is None else context
    inside.perform(
        str(directory.path), {name: function}, context, environ, lambda: 0.0, {"__pub_jid": "7"}
    )
    return context["retcode"], directory.answer()


def test_the_function_gets_its_arguments_and_the_answer_its_value(directory, environ):
    def function(*args, **kwargs):
        return [list(args), kwargs]

    retcode, answer = perform(directory, environ, function, args=[1, "1"], kwargs={"a": None})
    published = {"__pub_jid": "7", "__pub_fun": "x.y"}
    assert (retcode, answer.value) == (0, [[1, "1"], {**published, "a": None}])
    assert directory.begun


def test_only_a_function_that_takes_anything_is_told_about_its_job(directory, environ):
    assert perform(directory, environ, lambda a: a, args=[5])[1].value == 5


@pytest.mark.parametrize(
    ("value", "said", "retcode"),
    [
        (True, 0, 0),
        ({"result": False}, 0, 1),
        ({"success": False}, 0, 1),
        ({"result": True}, 0, 0),
        ({"result": None}, 0, 1),
        (None, 3, 3),
        (False, 0, 0),
    ],
)
def test_exit_status(directory, environ, value, said, retcode):
    context = {"retcode": 9}  # of something earlier: does not count

    def function():
        context["retcode"] = said
        return value

    found, answer = perform(directory, environ, function, context=context)
    assert found == answer.retcode == retcode


def test_an_exit_status_of_something_earlier_does_not_count(directory, environ):
    assert perform(directory, environ, lambda: 5, context={"retcode": 9})[0] == 0


def test_an_error_is_the_answer_and_goes_on(directory, environ):
    def function():
        raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        perform(directory, environ, function)
    answer = directory.answer()
    assert (answer.error, answer.error_type, answer.retcode) == ("why", "ValueError", 1)


def test_being_told_to_stop_is_no_answer(directory, environ):
    def function():
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        perform(directory, environ, function)
    assert directory.answer() is None


def test_a_missing_function_is_an_error(directory, environ):
    with pytest.raises(InputError, match=r"'x\.y' is not available in the snapshot"):
        perform(directory, environ, None, name="other.name")
    assert not directory.begun
    assert "not available" in directory.answer().error


def test_outside_of_a_transaction_it_is_refused(directory):
    with pytest.raises(InputError, match="inside a transaction only"):
        perform(directory, {}, lambda: 1)


def test_recorders_stand_first_and_standard_error_is_kept_apart(directory, environ, capfd):
    def function():
        os.write(2, b"of a child")
        return environ["PATH"].split(":")[0]

    _, answer = perform(directory, environ, function)
    assert answer.value == str(directory.programs)
    assert {path.name for path in directory.programs.iterdir()} == set(inside.RECORDED)
    first = (directory.programs / "systemctl").read_text().splitlines()[0]
    assert first == f"#!{sys.executable} -I"
    assert directory.error_output() == "of a child"
    assert capfd.readouterr().err == ""


def test_a_reboot_is_asked_for(directory, environ):
    perform(directory, environ, lambda: inside.ask_for_reboot(environ))
    assert directory.wish_list() == [{"action": "reboot"}]
    assert inside.ask_for_reboot({}) is False


def test_shadowed_places():
    assert inside.shadowed_places(captured.MOUNTINFO) == ["/home", "/srv/with space", "/var"]


def table(*points):
    return "".join(f"1 0 0:25 / {point} rw - tmpfs tmpfs rw\n" for point in points)


def test_vanishing(tmp_path):
    home, var, temporary = (tmp_path / name for name in ("home", "var", "tmp"))
    for place in (home / "a", var / "log", temporary):
        place.mkdir(parents=True)
    old = home / "old"
    old.touch()
    since = old.lstat().st_ctime + 0.0001
    while (home / "a/new").write_text("x") and (home / "a/new").lstat().st_ctime < since:
        pass
    for path in (var / "seen", var / "log/x", temporary / "x", temporary / "__salt.tmp.1"):
        path.touch()
    found = inside.vanishing(
        [str(home), str(var)],
        since,
        table("/", var, temporary),  # /var is the live one inside, /home is not
        temporary=[str(temporary)],
    )
    assert sorted(found) == [str(home / "a/new"), str(temporary / "x")]


def test_what_programs_write_while_they_run_does_not_vanish(tmp_path, monkeypatch):
    found = ["/run/zypp.pid", "/run/x/x.lock", "/run/data", "/home/x.pid"]
    monkeypatch.setattr(inside, "_files", lambda places, mounted: found)
    monkeypatch.setattr(inside.os, "lstat", lambda path: os.stat(tmp_path))
    assert inside.vanishing(["/home"], 0.0, table("/", "/run")) == ["/run/data", "/home/x.pid"]


def test_states_about_what_a_transaction_hides():
    names = {
        "/var/lib/x": True,  # not shown inside
        "/home": True,
        "/run/x": True,  # private inside
        "/var/cache/x": True,  # the live one
        "/etc/x": True,
        "/srv/x": False,
        "web": True,
        "/home/../etc/x": True,
    }
    value = {
        f"file_|-{name}_|-{name}_|-managed": {"name": name, "result": result, "changes": {}}
        for name, result in names.items()
    }
    value["file_|-c_|-/home/c_|-managed"] = {"name": "/home/c", "result": True, "changes": {"a": 1}}
    shadowed = ["/home", "/srv", "/var", "/var/cache"]
    found = inside.unseen(value, shadowed, table("/", "/var/cache", "/run"))
    assert found == ["/var/lib/x", "/home", "/run/x"]
    assert inside.unseen("text", shadowed, table("/")) == []


def test_vanishing_stops_at_mounts_and_at_a_limit(tmp_path, monkeypatch):
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted/file").touch()
    assert inside.vanishing([str(tmp_path)], 0.0, table("/", tmp_path / "mounted")) == []
    monkeypatch.setattr(inside, "SCAN_LIMIT", 2)
    for name in "abc":
        (tmp_path / name).touch()
    assert inside.vanishing([str(tmp_path)], 0.0, table("/"))[-1].startswith("(only the first 2")


@pytest.mark.parametrize(
    ("script", "status", "code"), [("exit 0", 0, 0), ("exit 7", 7, 7), ("kill -9 $$", -9, 137)]
)
def test_the_witness(tmp_path, script, status, code):
    assert witness.main(["w", str(tmp_path / "s"), "/bin/sh", "-c", script]) == code
    assert (tmp_path / "s").read_text() == f"{status}\n"
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600


def test_the_witness_of_a_missing_command(tmp_path):
    assert witness.main(["w", str(tmp_path / "s"), "/no/such"]) == 127
    assert (tmp_path / "s").read_text() == "127\n"
