import contextlib
import io
import lzma
import os
import pathlib
import stat
import tarfile
import zlib

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from saltext_safeupdate.core.errors import VerificationError
from saltext_safeupdate.core.slots import archive
from saltext_safeupdate.core.slots.tree import Tree
from tests.support import builds
from tests.support.builds import directory, hard_link, member, symlink

SIZE = 1 << 20


class Place:
    """A directory to unpack to, with something beside it that nobody may touch."""

    def __init__(self, top):
        self.root = top / "slot" / "tree"
        self.root.mkdir(parents=True)
        (top / "slot" / "beside").write_text("beside")
        (top / "outside").write_text("outside")
        self._top = top
        self._before = self._around()

    def _around(self):
        return {
            str(path): (os.lstat(path).st_mode, path.is_file() and path.read_bytes())
            for path in self._top.rglob("*")
            if self.root not in (path, *path.parents)
        }

    @property
    def is_alone(self):
        return self._around() == self._before

    def unpack(self, path, *, size=SIZE, entries=50):
        tree = Tree(str(self.root), size=size, entries=entries)
        archive.unpack(str(path), tree, size=size, entries=entries)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "place")


@pytest.fixture
def packed(tmp_path):
    def pack(*entries, mode="w:xz", **options):
        return builds.tarball(tmp_path / "it.tar", entries, mode=mode, **options)

    return pack


def _seen(root):
    """Return what is below a directory, byte code and owners left out."""
    found = {}
    for path in root.rglob("*"):
        seen = os.lstat(path)
        if stat.S_ISLNK(seen.st_mode):
            content = os.readlink(path)
        else:
            content = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (stat.S_IFMT(seen.st_mode), content)
    return found


@pytest.mark.parametrize("mode", ["w", "w:xz", "w:gz", "w:bz2"])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_a_build_is_unpacked_without_the_directory_around_it(place, packed, mode, form):
    place.unpack(packed(*builds.onedir(), mode=mode, format=form))
    root = place.root
    assert sorted(os.listdir(root)) == ["bin", "lib", "salt-call", "salt-minion"]
    assert (root / "bin" / "python3.11").read_bytes() == b"ELF" * 5000
    assert os.readlink(root / "bin" / "python3") == "python3.11"
    version = root / "lib/python3.11/site-packages/salt/version.py"
    assert version.read_text() == "3008.3"
    assert os.path.samefile(root / "lib" / "again.py", version)
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (root / "salt-minion", version)] == [
        0o755,
        0o644,
    ]
    # Python takes byte code for that of its source by this.
    assert os.stat(version).st_mtime == 1_700_000_000
    assert place.is_alone


def test_names_are_as_long_as_programs_make_them(place, packed):
    name = "/".join(["salt", *["d" * 100] * 5, "ä" * 100])
    place.unpack(packed(member(name, b"x")))
    assert (place.root / name.removeprefix("salt/")).read_bytes() == b"x"


def test_the_directory_around_may_have_a_dot_before_it(place, packed):
    place.unpack(packed(directory("."), directory("./salt"), member("./salt/a", b"x")))
    assert os.listdir(place.root) == ["a"]


def _special(kind, **attributes):
    return member("salt/odd", type=kind, **attributes)


HOSTILE = {
    "up": [member("salt/../../outside", b"x")],
    "up at once": [member("../outside", b"x")],
    "up in the midst": [member("salt/a/../b", b"x")],
    "absolute": [member("/tmp/outside", b"x")],
    "absolute in the midst": [member("salt//tmp", b"x"), member("//tmp/x", b"x")],
    "absolute behind a dot": [member(".//tmp/outside", b"x")],
    "a dot in the midst": [member("salt/./a", b"x")],
    "a dot at its end": [member("salt/a/.", b"x")],
    "a file that is the top": [member(".", b"x")],
    "a backslash": [member("salt\\..\\x", b"x")],
    "a control character": [member("salt/a\nb", b"x")],
    "an escape": [member("salt/\x1b[2J", b"x")],
    "right to left": [member("salt/a\u202eb", b"x")],
    "bytes that are no text": [member("salt/\udcff", b"x")],
    "a link that is absolute": [symlink("salt/a", "/etc/passwd")],
    "a link out": [symlink("salt/a", "../../outside")],
    "a link to what is beside": [symlink("salt/a", "../beside")],
    "a link out from below": [symlink("salt/a/b/c", "../../../../outside")],
    "a link down and up": [directory("salt/a"), symlink("salt/b", "a/../../outside")],
    "a chain of links": [
        symlink("salt/a", "."),
        symlink("salt/b", "a/.."),
        symlink("salt/c", "b/.."),
        member("salt/c/outside", b"x"),
    ],
    "a link with a control character": [symlink("salt/a", "b\nc")],
    "a file through a link": [symlink("salt/a", "."), member("salt/a/b", b"x")],
    "a file through a link to a directory": [
        directory("salt/d"),
        symlink("salt/a", "d"),
        member("salt/a/b", b"x"),
    ],
    "a file onto a link": [symlink("salt/a", "b"), member("salt/a", b"x")],
    "a directory onto a link": [symlink("salt/a", "b"), directory("salt/a")],
    "a hard link out": [hard_link("salt/a", "../outside")],
    "a hard link that is absolute": [hard_link("salt/a", "/etc/passwd")],
    "a hard link to nothing": [hard_link("salt/a", "salt/b")],
    "a hard link to what comes later": [hard_link("salt/a", "salt/b"), member("salt/b", b"x")],
    "a hard link to a link": [symlink("salt/b", "c"), hard_link("salt/a", "salt/b")],
    "a hard link to a directory": [directory("salt/b"), hard_link("salt/a", "salt/b")],
    "a device": [_special(tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "a block device": [_special(tarfile.BLKTYPE, devmajor=8, devminor=0)],
    "a pipe": [_special(tarfile.FIFOTYPE)],
    "an unknown kind": [_special(b"Z")],
    "a contiguous file": [_special(tarfile.CONTTYPE)],
    "setuid": [member("salt/a", b"x", mode=0o4755)],
    "setgid": [member("salt/a", b"x", mode=0o2755)],
    "a setgid directory": [member("salt/a", type=tarfile.DIRTYPE, mode=0o2755)],
    "a sticky directory": [member("salt/a", type=tarfile.DIRTYPE, mode=0o1777)],
    "a name twice": [member("salt/a", b"x"), member("salt/a", b"y")],
    "a name twice in two forms": [member("salt/a", b"x"), member("salt/./a", b"y")],
    "a directory twice": [directory("salt/a"), directory("salt/a")],
    "a file and a directory": [member("salt/a", b"x"), directory("salt/a")],
    "a file in a file": [member("salt/a", b"x"), member("salt/a/b", b"x")],
    "two directories": [member("salt/a", b"x"), member("pepper/a", b"x")],
    "no directory": [member("salt", b"x")],
    "a link in its place": [symlink("salt", "/etc"), member("salt/passwd", b"x")],
    "too large": [member("salt/a", b"x" * SIZE), member("salt/b", b"x")],
    "too many": [member(f"salt/{number}", b"") for number in range(51)],
    "a time of long ago": [member("salt/a", b"x", mtime=-1)],
    "a time that never comes": [member("salt/a", b"x", pax_headers={"mtime": "nan"})],
    "a late time": [member("salt/a", b"x", mtime=1 << 34)],
    "holes": [member("salt/a", b"x", pax_headers={"GNU.sparse.map": "0,1"})],
    "holes, newer": [
        member(
            "salt/a",
            b"1\n0\n1\n".ljust(512, b"\0") + b"x",
            pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
        )
    ],
    "no end of holes": [
        member(
            "salt/a",
            b"999999999\n".ljust(512, b"\0"),
            pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
        )
    ],
    "another name in a header": [member("salt/a", b"x", pax_headers={"path": "/etc/passwd"})],
    "a size in a header": [member("salt/a", b"x", pax_headers={"size": "-1024"})],
    "an endless size in a header": [member("salt/a", b"x", pax_headers={"size": "9" * 30})],
    "a long name": [member("salt/" + "x" * 300, b"x")],
    "a long header": [member("salt/a", b"x", pax_headers={"comment": "x" * (2 << 20)})],
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_archive_is_refused_and_nothing_outside_changes(place, packed, name):
    path = packed(*HOSTILE[name], mode="w:gz", format=tarfile.PAX_FORMAT)
    with pytest.raises(VerificationError, match=r"^The archive is refused.*Nothing of it was kept"):
        place.unpack(path)
    assert place.is_alone


def test_what_a_header_says_of_all_that_follows_is_refused(place, tmp_path):
    with tarfile.open(tmp_path / "it.tar", "w", pax_headers={"path": "salt/other"}) as made:
        made.addfile(member("salt/a")[0])
    with pytest.raises(VerificationError, match="applies to all entries after it"):
        place.unpack(tmp_path / "it.tar")


def test_a_comment_about_all_that_follows_is_none_of_that(place, tmp_path):
    with tarfile.open(tmp_path / "it.tar", "w", pax_headers={"comment": "3f2a"}) as made:
        made.addfile(member("salt/a")[0])
    place.unpack(tmp_path / "it.tar")


@pytest.fixture
def plain(packed):
    """The bytes of a good archive that is not compressed."""
    with open(packed(*builds.onedir(), mode="w", format=tarfile.USTAR_FORMAT), "rb") as file:
        return file.read()


@pytest.mark.parametrize("cut", [0, 1, 511, 512, 513, 1024, 5000, 17_000, 17_920])
def test_one_that_is_cut_off_is_refused_wherever_that_is(place, tmp_path, plain, cut):
    (tmp_path / "cut.tar").write_bytes(plain[:cut])
    with pytest.raises(VerificationError):
        place.unpack(tmp_path / "cut.tar")
    assert place.is_alone


@pytest.mark.parametrize("mode", ["w:xz", "w:gz", "w:bz2"])
def test_one_that_is_cut_off_when_it_is_compressed_is_refused(place, packed, tmp_path, mode):
    whole = pathlib.Path(packed(*builds.onedir(), mode=mode)).read_bytes()
    for cut in range(0, len(whole) - 9, 97):
        (tmp_path / "cut.tar").write_bytes(whole[:cut])
        with pytest.raises(VerificationError):
            Place(tmp_path / f"at{cut}").unpack(tmp_path / "cut.tar")


def test_a_damaged_header_does_not_end_it_unnoticed(place, tmp_path, plain):
    at = plain.index(b"salt/salt-call")
    (tmp_path / "it.tar").write_bytes(plain[:at] + b"X" + plain[at + 1 :])
    with pytest.raises(VerificationError, match="damaged"):
        place.unpack(tmp_path / "it.tar")


def test_what_follows_its_end_would_be_another_archive_to_others(place, tmp_path, plain):
    (tmp_path / "it.tar").write_bytes(plain + plain)
    with pytest.raises(VerificationError, match="something follows"):
        place.unpack(tmp_path / "it.tar")


@pytest.mark.parametrize("mode", ["w:xz", "w:gz"])
def test_zeros_without_end_take_neither_memory_nor_disk(place, tmp_path, plain, mode):
    opener = {"w:xz": archive.lzma.open, "w:gz": archive.gzip.open}[mode]
    with opener(tmp_path / "it.tar", "wb") as file:
        file.write(plain)
        for _ in range(64):
            file.write(bytes(1 << 20))
    with pytest.raises(VerificationError, match="larger than its manifest says"):
        place.unpack(tmp_path / "it.tar")


def test_a_dictionary_that_fills_the_memory_is_refused(place, packed):
    path = packed(*builds.onedir())
    content = bytearray(pathlib.Path(path).read_bytes())
    # The header of the first block: its size, flags, the filter, and the size of its dictionary.
    size = (content[12] + 1) * 4
    assert content[14:16] == b"\x21\x01", "it is LZMA2"
    content[16] = 40
    content[12 + size - 4 : 12 + size] = zlib.crc32(content[12 : 12 + size - 4]).to_bytes(
        4, "little"
    )
    pathlib.Path(path).write_bytes(content)
    with pytest.raises(VerificationError, match="Memory usage limit"):
        place.unpack(path)
    assert place.is_alone


@pytest.mark.parametrize("between", [b"", b"\0" * 8])
def test_xz_may_have_written_several_streams(place, tmp_path, plain, between):
    parts = [lzma.compress(plain[start : start + 7000]) for start in range(0, len(plain), 7000)]
    path = tmp_path / "several.tar.xz"
    path.write_bytes(between.join(parts) + between)
    place.unpack(path)
    assert (pathlib.Path(place.root) / "bin" / "python3.11").read_bytes() == b"ELF" * 5000


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K", b"S"])
def test_a_header_that_claims_to_be_huge_is_not_read(place, tmp_path, kind):
    """The reader would take all of it into memory, or go back to what it has read."""
    for size in (8 << 30, -1024, -(1 << 40)):
        found = tarfile.TarInfo("salt/a")
        found.type, found.size = kind, size
        (tmp_path / "it.tar").write_bytes(found.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
        with pytest.raises(VerificationError):
            place.unpack(tmp_path / "it.tar")


def test_headers_of_headers_without_end_are_no_archive(place, tmp_path):
    one = tarfile.TarInfo("salt/a")
    one.type = b"x"
    (tmp_path / "it.tar").write_bytes(one.tobuf() * 2000)
    with pytest.raises(VerificationError):
        place.unpack(tmp_path / "it.tar")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_bytes_that_are_changed_are_refused_or_unpacked(tmp_path_factory, data):
    whole = bytearray()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as file:
        for found, content in [*builds.onedir(), member("salt/" + "x" * 120, b"y")]:
            file.addfile(found, io.BytesIO(content))
    whole += made.getvalue()
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=8)):
        whole[at] = data.draw(st.integers(0, 255))
    top = tmp_path_factory.mktemp("changed")
    (top / "it.tar").write_bytes(whole)
    place = Place(top / "place")
    with contextlib.suppress(VerificationError):
        place.unpack(top / "it.tar")
    assert place.is_alone


# -- compared with the filter of the standard library -----------------------------------

SEGMENTS = st.sampled_from(["a", "b", "c", "..", ".", ""])
PATHS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)
NAMES = st.one_of(PATHS.map("salt/{}".format), PATHS.map("salt/{}".format), PATHS)
FILES = st.builds(
    lambda name, mode: member(name, b"x", mode=mode),
    NAMES,
    st.sampled_from([0o644, 0o755, 0o600, 0o777, 0o4755, 0o2755, 0]),
)
KINDS = st.sampled_from([tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
ENTRIES = st.one_of(
    FILES,
    NAMES.map(directory),
    st.builds(symlink, NAMES, st.one_of(PATHS, PATHS.map("/{}".format))),
    st.builds(hard_link, NAMES, NAMES),
    st.builds(lambda name, kind: member(name, type=kind), NAMES, KINDS),
)


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ENTRIES, min_size=1, max_size=5))
@example([symlink("salt/a", "."), symlink("salt/b", "a/../.."), member("salt/b/c", b"x")])
@example([member("salt/a", b"x"), hard_link("salt/b", "salt/a"), symlink("salt/c", "b")])
@example([directory("salt/a"), symlink("salt/a/b", "../c"), directory("salt/c")])
@example([symlink("salt/", ""), member("salt/", b"x"), member("salt/", type=tarfile.FIFOTYPE)])
def test_whatever_pythons_filter_refuses_is_refused(tmp_path_factory, entries):
    """And what is taken is what that makes of it."""
    top = tmp_path_factory.mktemp("compared")
    path = builds.tarball(top / "it.tar", entries, mode="w")
    place = Place(top / "ours")
    try:
        place.unpack(path)
        refused = False
    except VerificationError:
        refused = True
    assert place.is_alone
    # Python is not asked about the others: of the fifo above, it makes one in spite of its filter,
    # and then waits for somebody who reads from it.
    if not refused and hasattr(tarfile, "data_filter"):
        _compare(path, place, Place(top / "other"))


def _compare(path, place, other):
    with tarfile.open(path) as theirs:
        theirs.extractall(other.root, filter="data")
    # Whatever the one directory is called.
    made = next(other.root.iterdir(), None)
    assert _seen(place.root) == (_seen(made) if made else {})
