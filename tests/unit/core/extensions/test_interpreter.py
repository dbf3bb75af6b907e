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


RELENV = """\
#!/bin/sh
"true" ''''
# shellcheck disable=SC2093
"exec" "$(dirname "$(readlink -f "$0")"){}" "$0" "$@"
' '''

import sys
"""
LONG = """\
#!/bin/sh
'''exec' {} "$0" "$@"
' '''
import sys
"""


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        (RELENV.format("/bin/python3.10"), "salt", "salt/bin/python3.10"),
        (RELENV.format("/python3.10"), "salt/bin", "salt/bin/python3.10"),
        (RELENV.format("/../bin/python3"), "salt/x", "salt/bin/python3"),
        (LONG.format("/a/long/path/python3"), "salt", "/a/long/path/python3"),
        (LONG.format('"/a path/python3"'), "salt", "/a path/python3"),
        ("#!/bin/sh\nexec /usr/bin/python3 -m salt\n", "salt", None),
        ('#!/bin/sh\n"exec" "$(id)/python3" "$0" "$@"\n', "salt", None),
    ],
)
def test_the_interpreter_that_a_shell_starts(tmp_path, text, place, found):
    path = tmp_path / place / "salt-minion"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    link = tmp_path / "link"
    link.symlink_to(path)
    expected = found and str(tmp_path / found)
    assert [interpreter.named_by(str(each)) for each in (path, link)] == [expected] * 2


@pytest.mark.usefixtures("real_process")
def test_the_interpreter_is_the_one_that_runs(old, tmp_path):
    """What a shell makes of the first lines is what we read in them."""
    said = "\nprint(sys.executable)\n"
    beside = tmp_path / "old" / "salt-minion"
    beside.write_text(RELENV.format("/bin/python3") + said)
    long = tmp_path / "long"
    long.write_text(LONG.format(old.path) + said)
    for program in (beside, long):
        program.chmod(0o755)
        ran = run((str(program),), timeout=60).stdout.strip()
        assert ran == interpreter.named_by(str(program)) == old.path


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
        told = '{"python": [3, 11], "paths": [], "names": [], "purelib": "/lib"}'
        return Result(argv=argv, returncode=0, stdout=told, stderr="")

    interpreter.distributions("/python", runner)
    interpreter.places("/python", runner)
    interpreter.importable("/python", runner, ["one"])
    assert interpreter.loads("/python", runner, "it")
    assert not interpreter.lacks_engine("/python", runner, "/etc/salt/minion", "it")
    interpreter.compiled("/python", runner, "tests", ["/lib/salt"], print)
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
