import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.extensions import interpreter, programs
from saltext_safeupdate.core.host.command import Result, run


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"#!/opt/salt/bin/python3.10\nimport salt\n", "/opt/salt/bin/python3.10"),
        (b"#! /usr/bin/python3 -s\n", "/usr/bin/python3"),
        (b"#!/usr/bin/env /opt/python3\n", "/opt/python3"),
        (b"#!/usr/bin/env python3\n", None),
        (b"#!\n", None),
        (b"\x7fELF\x02\xff\xfe", None),
        (b"", None),
    ],
)
def test_the_interpreter_of_a_program(tmp_path, content, found):
    path = tmp_path / "salt-minion"
    path.write_bytes(content)
    assert interpreter.named_by(str(path)) == found


def test_a_program_that_is_not_there_has_none(tmp_path):
    assert interpreter.named_by(str(tmp_path / "none")) is None


def test_the_text_is_passed_so_that_no_update_can_remove_it(monkeypatch):
    """What is asked of the interpreter does not lie in a file when it is asked."""
    texts = {
        path.read_text(encoding="utf-8")
        for path in pathlib.Path(programs.__file__).parent.glob("*.py")
        if path.name != "__init__.py"
    }
    monkeypatch.setattr("builtins.open", lambda *args, **kwargs: pytest.fail("a file is read"))
    passed = set()

    def runner(argv, **_):
        assert argv[:3] == ("/python", "-I", "-c")
        passed.add(argv[3])
        return Result(argv=argv, returncode=0, stdout="{}", stderr="")

    interpreter.distributions("/python", runner)
    interpreter.places("/python", runner)
    interpreter.importable("/python", runner, ["one"])
    assert interpreter.loads("/python", runner, "it")
    assert passed == texts


@pytest.mark.usefixtures("real_process")
def test_what_salt_loads(old):
    old.add("saltext-one", files={"one/__init__.py": "", "two/__init__.py": "1 / 0"}, point="one")
    loads = interpreter.loads
    assert loads(old.path, run, "saltext-one")
    assert not loads(old.path, run, "one")
    old.add("saltext-two", point="two")
    assert not loads(old.path, run, "saltext-two")
    with pytest.raises(CommandError, match="cannot be started"):
        loads("/no/python", run, "saltext-one")
