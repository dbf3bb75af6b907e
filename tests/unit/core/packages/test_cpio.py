"""Archives of rpm packages, written by hand."""

import io

import pytest

from saltext_safeupdate.core.packages.cpio import extract

REGULAR, DIRECTORY, LINK = 0o100644, 0o040755, 0o120777


def entry(name, content=b"", mode=REGULAR):
    numbers = [0] * 13
    numbers[1], numbers[6], numbers[11] = mode, len(content), len(name.encode()) + 1
    head = b"070701" + b"".join(f"{number:08x}".encode() for number in numbers)
    named = head + name.encode() + b"\0"
    named += b"\0" * (-len(named) % 4)
    return named + content + b"\0" * (-len(content) % 4)


ARCHIVE = b"".join(
    [
        entry("./opt", mode=DIRECTORY),
        entry("./opt/salt/state.py", b"12345"),
        entry("./opt/salt/minion.py", b"123"),
        entry("./opt/link/salt/minion.py", b"/etc/passwd", mode=LINK),
        entry("../../outside/salt/minion.py", b"1"),
        entry("TRAILER!!!"),
    ]
)


def test_only_regular_files_that_match_come_out_and_stay_below(tmp_path):
    assert extract(io.BytesIO(ARCHIVE), str(tmp_path), ["*/salt/minion.py"]) == 2
    found = {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert found == {"opt/salt/minion.py": b"123", "outside/salt/minion.py": b"1"}


@pytest.mark.parametrize("archive", [b"", b"nonsense", ARCHIVE[:150], ARCHIVE[:300]])
def test_what_is_no_whole_archive_is_an_error(tmp_path, archive):
    with pytest.raises(ValueError, match=r"no archive|too early"):
        extract(io.BytesIO(archive), str(tmp_path), ["*"])
