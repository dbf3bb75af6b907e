import os
import pathlib
import runpy
import stat
import sys
import zipfile

import pytest

from saltext_safeupdate.core.errors import VerificationError
from saltext_safeupdate.core.slots import wheels
from saltext_safeupdate.core.slots.tree import Tree
from tests.support import builds

SIZE = 1 << 20


@pytest.fixture
def root(tmp_path):
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.fixture
def unpack(root):
    def call(*paths, size=SIZE):
        wheels.unpack(map(str, paths), Tree(str(root), size=size), python=builds.PYTHON)

    return call


def test_modules_programs_and_data_go_where_they_belong(root, unpack, tmp_path):
    path = builds.wheel(
        tmp_path / "salt.whl",
        {
            "salt/__init__.py": b"x",
            "salt-3008.3.data/purelib/salt/more.py": b"y",
            "salt-3008.3.data/platlib/salt/fast.so": b"z",
            "salt-3008.3.data/data/share/man/salt.1": b"m",
            "salt-3008.3.data/scripts/salt-odd": b"#!python\nodd\n",
            "salt-3008.3.data/scripts/salt-sh": b"#!/bin/sh\nodd\n",
        },
        entry_points="[console_scripts]\nsalt-minion = salt.scripts:salt_minion\n[other]\na=b",
    )
    unpack(path)
    assert sorted(os.listdir(root)) == ["bin", "lib", "share"]
    assert sorted(os.listdir(root / "lib" / "salt")) == ["__init__.py", "fast.so", "more.py"]
    assert "RECORD" in os.listdir(root / "lib" / "salt-3008.3.dist-info")
    assert (root / "bin" / "salt-odd").read_text() == f"#!{builds.PYTHON}\nodd\n"
    assert (root / "bin" / "salt-sh").read_text() == "#!/bin/sh\nodd\n"
    programs = [root / "bin" / name for name in ("salt-minion", "salt-odd", "salt-sh")]
    assert all(stat.S_IMODE(os.stat(path).st_mode) == 0o755 for path in programs)


def test_a_program_that_is_there_and_described_is_the_described_one(root, unpack, tmp_path):
    """As with pip. The wheels of Salt have both."""
    path = builds.wheel(
        tmp_path / "salt.whl",
        {"salt-3008.3.data/scripts/salt-minion": b"#!python\nother\n"},
        entry_points="[console_scripts]\nsalt-minion = salt.scripts:salt_minion\n",
    )
    unpack(path)
    assert "sys.exit(salt_minion())" in (root / "bin" / "salt-minion").read_text()


def test_a_program_runs_what_its_own_tree_has(root, unpack, tmp_path, monkeypatch):
    code = b"import sys\ndef salt_minion():\n    return f'ran {sys.path[0]}'\n"
    path = builds.wheel(
        tmp_path / "salt.whl",
        {"slotted/__init__.py": b"", "slotted/scripts.py": code},
        entry_points="[console_scripts]\nsalt-minion = slotted.scripts:salt_minion\n",
    )
    unpack(path)
    (tmp_path / "active").symlink_to(root)
    monkeypatch.setattr(sys, "path", ["", *sys.path[1:]])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(tmp_path / "active" / "bin" / "salt-minion"), run_name="__main__")
    assert ended.value.code == f"ran {root / 'lib'}", "it is the slot, not the link to it"


def test_several_wheels_make_one_tree(root, unpack, tmp_path):
    other = builds.wheel(tmp_path / "b.whl", {"b.py": b""}, info="b-1.0.dist-info")
    unpack(builds.salt_wheel(tmp_path / "a.whl"), other)
    assert {"salt", "b.py"} < set(os.listdir(root / "lib"))


def _without(name):
    return lambda lines: [line for line in lines if not line.startswith(name)]


def _with(*more):
    return lambda lines: [*lines, *more]


def _changed(old, new):
    return lambda lines: [line.replace(old, new) for line in lines]


RECORDS = {
    "a file is not in it": _without("a.py"),
    "it has a file that is not there": _with("b.py,sha256=AAAA,1"),
    "another digest": _changed("sha256=", "sha256=A"),
    "another kind of digest": _changed("sha256=", "md5="),
    "no digest": lambda lines: ["a.py,,1", *_without("a.py")(lines)],
    "another size": _changed(",5", ",6"),
    "no size": _changed(",5", ","),
    "a file twice": lambda lines: [lines[0], *lines],
    "a line of another kind": _with("a,b"),
    "an empty line": _with("", "x,y,z"),
    "a path up": _with("../../outside,,"),
}


@pytest.mark.parametrize("name", list(RECORDS))
def test_a_wheel_that_is_not_as_its_record_says_is_refused(root, unpack, tmp_path, name):
    path = builds.wheel(tmp_path / "a.whl", {"a.py": b"x = 1"}, record=RECORDS[name])
    with pytest.raises(VerificationError, match="Nothing of it was kept"):
        unpack(path)


FILES = {
    "up": {"../outside": b"x"},
    "absolute": {"/tmp/outside": b"x"},
    "in the midst": {"a/../../../outside": b"x"},
    "a backslash": {"..\\outside": b"x"},
    "a control character": {"a\nb": b"x"},
    "up in its data": {"salt-3008.3.data/data/../../x": b"x"},
    "data of an unknown kind": {"salt-3008.3.data/etc/passwd": b"x"},
    "data in no directory": {"salt-3008.3.data/scripts": b"x"},
    "its list of programs up": {
        "salt-3008.3.dist-info/entry_points.txt": b"[console_scripts]\n../x = a:b\n"
    },
    "a program that is code": {
        "salt-3008.3.dist-info/entry_points.txt": b"[console_scripts]\nx = os:system('ls')\n"
    },
    "a program of no form": {
        "salt-3008.3.dist-info/entry_points.txt": b"[console_scripts]\nx = os\n"
    },
    "its list of programs is none": {"salt-3008.3.dist-info/entry_points.txt": b"x = y"},
    "another wheel in it": {"b-1.0.dist-info/METADATA": b""},
    "too large": {"a.py": b"x" * (SIZE + 1)},
}


@pytest.mark.parametrize("name", list(FILES))
def test_a_hostile_wheel_is_refused_and_nothing_outside_changes(root, unpack, tmp_path, name):
    path = builds.wheel(tmp_path / "a.whl", FILES[name])
    with pytest.raises(VerificationError, match="Nothing of it was kept"):
        unpack(path)
    assert (tmp_path / "outside").read_text() == "outside"
    assert sorted(os.listdir(tmp_path)) == ["a.whl", "outside", "tree"]


@pytest.mark.parametrize(
    "mode", [stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o644, stat.S_IFREG | 0o4755]
)
def test_what_is_no_plain_file_is_refused(root, unpack, tmp_path, mode):
    path = builds.wheel(tmp_path / "a.whl", {"a.py": b"x"})
    with zipfile.ZipFile(path, "a") as wheel:
        info = zipfile.ZipInfo("link")
        info.external_attr = mode << 16
        wheel.writestr(info, "/etc/passwd")
    with pytest.raises(VerificationError, match="link"):
        unpack(path)


def test_an_entry_twice_is_refused(root, unpack, tmp_path):
    path = builds.wheel(tmp_path / "a.whl", {"a.py": b"x"})
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as wheel:
        wheel.writestr("a.py", b"y")
    with pytest.raises(VerificationError, match="twice"):
        unpack(path)


def test_two_wheels_that_have_one_file_are_refused(root, unpack, tmp_path):
    other = builds.wheel(tmp_path / "b.whl", {"salt/version.py": b""}, info="b-1.0.dist-info")
    with pytest.raises(VerificationError, match="twice"):
        unpack(builds.salt_wheel(tmp_path / "a.whl"), other)


@pytest.mark.parametrize("cut", [0, 10, 100, 400])
def test_one_that_is_cut_off_is_refused(root, unpack, tmp_path, cut):
    path = builds.salt_wheel(tmp_path / "a.whl")
    with open(path, "rb+") as file:
        file.truncate(cut)
    with pytest.raises(VerificationError):
        unpack(path)


def test_one_that_is_damaged_is_refused(root, tmp_path):
    whole = pathlib.Path(builds.salt_wheel(tmp_path / "a.whl")).read_bytes()
    for at in range(0, len(whole), 3):
        (tmp_path / "b.whl").write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        place = tmp_path / f"tree{at}"
        place.mkdir()
        try:
            wheels.unpack([str(tmp_path / "b.whl")], Tree(str(place), size=SIZE), python="/p")
        except VerificationError:
            continue
        # What says when a file was made, and such, is not looked at.
        assert (place / "lib" / "salt" / "version.py").read_text() == "3008.3"


def test_a_list_of_files_that_fills_the_memory_is_not_read(root, unpack, tmp_path):
    path = pathlib.Path(builds.salt_wheel(tmp_path / "salt.whl"))
    end = path.read_bytes()[-22:]
    # It says of a hole that it is the list: 1 GiB, of which the disk has nothing.
    size = 1 << 30
    with open(path, "r+b") as file:
        file.truncate(size)
        file.seek(size)
        file.write(end[:12] + size.to_bytes(4, "little") + bytes(6))
    with pytest.raises(VerificationError, match="its list of files is too long"):
        unpack(path)
    assert os.listdir(root) == []


def test_a_wheel_without_a_record_is_none(root, unpack, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("a-1.0.dist-info/METADATA", "")
    with pytest.raises(VerificationError, match="RECORD"):
        unpack(tmp_path / "a.whl")
