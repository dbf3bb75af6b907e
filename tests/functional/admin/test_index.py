"""A real pip and an index on the loopback device: wheels become a slot, and nothing is built."""

from __future__ import annotations

import functools
import http.server
import io
import os
import pathlib
import sys
import tarfile
import threading

import pytest

from saltext_safeupdate.core.errors import CommandError, SafeUpdateError
from saltext_safeupdate.core.host.command import run
from saltext_safeupdate.core.slots import byte_code
from saltext_safeupdate.core.slots.index import Index
from saltext_safeupdate.core.slots.store import Slots
from tests.support import builds

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
NOW = 1_700_000_000.0


class Site:
    """A directory that is served as an index of packages, as pip reads one."""

    def __init__(self, path):
        self.path = path / "simple"
        self.path.mkdir()

    def salt(self, version, *, needs=""):
        metadata = f"Metadata-Version: 2.1\nName: salt\nVersion: {version}\n"
        if needs:
            metadata += f"Requires-Dist: {needs}\n"
        files = {
            "salt/__init__.py": b"",
            "salt/version.py": f"VERSION = {version!r}\n".encode(),
            "salt/states/test.py": b"",
            f"salt-{version}.dist-info/METADATA": metadata.encode(),
        }
        entry = "[console_scripts]\nsalt-minion = salt.scripts:salt_minion\n"
        return self._wheel("salt", version, files, entry_points=entry)

    def other(self, name, version="1.0"):
        files = {
            f"{name}.py": b"x = 1\n",
            f"{name}-{version}.dist-info/METADATA": (
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
            ),
        }
        return self._wheel(name, version, files)

    def source(self, name, version, trace):
        """Have the source of a distribution there: whoever builds it leaves a trace."""
        directory = self.path / name
        directory.mkdir(exist_ok=True)
        text = f"open({str(trace)!r}, 'w').close()\n".encode()
        with tarfile.open(directory / f"{name}-{version}.tar.gz", "w:gz") as archive:
            for member, content in (("setup.py", text), ("PKG-INFO", b"Metadata-Version: 1.0\n")):
                info = tarfile.TarInfo(f"{name}-{version}/{member}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))

    def _wheel(self, name, version, files, **options):
        directory = self.path / name
        directory.mkdir(exist_ok=True)
        info = f"{name}-{version}.dist-info"
        files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        path = directory / f"{name}-{version}-py3-none-any.whl"
        builds.wheel(path, files, info=info, **options)
        return path


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    handler = functools.partial(Quiet, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}/simple/"
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def configured(site):
    # Whatever this machine's own pip is configured for is left alone.
    return {
        "PIP_INDEX_URL": site.url,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_EXTRA_INDEX_URL": "",
    }


@pytest.fixture
def index(configured):
    return Index(["/none/python3", sys.executable], MINOR, run, configured)


def test_what_an_index_offers_becomes_a_slot(site, index, tmp_path):
    for version in ("3007.9", "3007.20", "3008.3"):
        site.salt(version, needs="needed>=1.0")
    site.other("needed")
    assert index.versions() == ["3008.3", "3007.20", "3007.9"]
    slots = Slots(str(tmp_path / "slots"), clock=lambda: NOW)
    where = tmp_path / "state"
    with index.fetched("3007.20", str(where)) as (build, files):
        assert (build.version, build.kind, build.python) == ("3007.20", "wheels", MINOR)
        assert sorted(files) == ["needed-1.0-py3-none-any.whl", "salt-3007.20-py3-none-any.whl"]
        assert set(build.files) == set(files)
        slot = slots.stage(build, files, python=sys.executable)
    assert os.listdir(where) == []
    assert slot.version == "3007.20"
    with open(os.path.join(slot.tree, "lib", "salt", "version.py"), encoding="utf-8") as file:
        assert file.read() == "VERSION = '3007.20'\n"
    slots.verify(slot.ident)


def test_a_slot_has_the_byte_code_that_a_minion_starts_with_and_is_as_it_was_made(
    site, index, tmp_path
):
    site.salt("3008.3")
    slots = Slots(str(tmp_path / "slots"), clock=lambda: NOW)
    with index.fetched("3008.3", str(tmp_path / "state")) as (build, files):
        slot = slots.stage(
            build, files, python=sys.executable, furnish=lambda tree: byte_code.write(tree, run)
        )
    place = pathlib.Path(slot.tree, "lib")
    (cached,) = (place / "salt" / "__pycache__").glob("version.*.pyc")
    before = cached.read_bytes()
    assert list((place / "salt" / "states").rglob("*.pyc")) == []
    loads = f"import sys; sys.path.insert(0, {str(place)!r}); import salt.version, salt.states.test"
    run((sys.executable, "-I", "-c", loads), timeout=60)
    assert cached.read_bytes() == before, "it was good where it lies now"
    slots.verify(slot.ident)


def test_what_is_no_wheel_is_not_built(site, index, tmp_path):
    with pytest.raises(SafeUpdateError, match=r"offers no Salt.*Nothing was changed"):
        index.versions()
    # pip lists that as well, and so it is with the index of everybody.
    site.source("salt", "3008.3", tmp_path / "trace")
    with pytest.raises(SafeUpdateError, match=r"no wheel of Salt.*3008\.3.*Nothing was changed"):
        index.versions()
    site.salt("3007.20", needs="needed")
    assert index.versions() == ["3007.20"]
    site.source("needed", "1.0", tmp_path / "trace")
    for version, missing in (("3008.3", "salt"), ("3007.20", "needed")):
        with (
            pytest.raises(
                SafeUpdateError, match=f"cannot download the wheels.*{missing}.*Nothing was changed"
            ),
            index.fetched(version, str(tmp_path / "state")),
        ):
            pass
    assert os.listdir(tmp_path / "state") == []
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("address", ["{url}evil/evil-1.0.tar.gz", "file://{path}/evil-1.0.tar.gz"])
def test_what_a_wheel_needs_from_an_address_is_not_built(site, index, tmp_path, address):
    """pip takes such an address from the wheel, and there it takes what is no wheel."""
    site.source("evil", "1.0", tmp_path / "trace")
    where = address.format(url=site.url, path=site.path / "evil")
    site.salt("3008.3", needs=f"evil @ {where}")
    with (
        pytest.raises(SafeUpdateError, match=r"cannot download.*no wheel.*Nothing was changed"),
        index.fetched("3008.3", str(tmp_path / "state")),
    ):
        pass
    assert not (tmp_path / "trace").exists()
    assert os.listdir(tmp_path / "state") == []


def test_what_pip_is_told_otherwise_changes_neither_what_nor_for_whom(site, configured, tmp_path):
    site.salt("3008.3", needs="needed")
    site.other("needed")
    site.source("needed", "2.0", tmp_path / "trace")
    site.source("salt", "3008.4", tmp_path / "trace")
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nquiet = 3\nno-deps = true\nno-binary = needed\n")
    other = {
        "PIP_CONFIG_FILE": str(config),
        "PIP_NO_BINARY": ":all:",
        "PIP_DEST": str(tmp_path / "elsewhere"),
        "PIP_PYTHON": "/none/python3",
        "PIP_PYTHON_VERSION": "3.6",
        "PIP_PLATFORM": "win32",
    }
    index = Index([sys.executable], MINOR, run, {**configured, **other})
    assert index.versions() == ["3008.3"]
    with index.fetched("3008.3", str(tmp_path / "state")) as (_, files):
        assert sorted(files) == ["needed-1.0-py3-none-any.whl", "salt-3008.3-py3-none-any.whl"]
    assert not (tmp_path / "trace").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_versions_that_are_taken_back_and_candidates_are_no_newest(site, index):
    paths = [site.salt(version) for version in ("3008.3", "3008.4", "3008.5rc1")]
    attributes = ["", ' data-yanked="it loses jobs"', ""]
    links = "".join(
        f'<a href="{path.name}"{attribute}>{path.name}</a>'
        for path, attribute in zip(paths, attributes, strict=True)
    )
    (site.path / "salt" / "index.html").write_text(links)
    assert index.versions() == ["3008.3"]


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\xff<<a href=",
        b"<a href='../../../etc/passwd'>salt-3008.3-py3-none-any.whl</a>",
        b"<a href='salt-3008.3-py3-none-any.whl'>it is not there</a>",
    ],
)
def test_an_index_that_answers_with_junk_changes_nothing(site, index, tmp_path, answer):
    (site.path / "salt").mkdir()
    (site.path / "salt" / "index.html").write_bytes(answer)
    with (
        pytest.raises(SafeUpdateError, match=r"cannot download.*Nothing was changed"),
        index.fetched("3008.3", str(tmp_path / "state")),
    ):
        pass
    assert os.listdir(tmp_path / "state") == []


def test_a_wheel_that_is_none_or_another_version_is_refused(site, index, tmp_path):
    site.salt("3008.3").write_bytes(b"junk" * 100)
    made = site.salt("3007.9")
    made.rename(made.with_name(made.name.replace("3007.9", "3007.20")))
    for version in ("3008.3", "3007.20"):
        with (
            pytest.raises(SafeUpdateError, match=r"cannot download.*Nothing was changed"),
            index.fetched(version, str(tmp_path / "state")),
        ):
            pass


def test_an_index_that_does_not_answer_is_told(configured):
    def late(argv, **options):
        if "versions" in argv:
            raise CommandError(argv, "it did not end within 120 s")
        return run(argv, **options)

    index = Index([sys.executable], MINOR, late, configured)
    with pytest.raises(SafeUpdateError, match=r"does not answer.*120 s.*Nothing was changed"):
        index.versions()


def test_a_file_that_is_not_what_the_index_says_is_refused(site, index, tmp_path):
    path = site.salt("3008.3")
    (site.path / "salt" / "index.html").write_text(
        f'<a href="{path.name}#sha256={"0" * 64}">{path.name}</a>'
    )
    with (
        pytest.raises(SafeUpdateError, match=r"Nothing was changed"),
        index.fetched("3008.3", str(tmp_path / "state")),
    ):
        pass


def test_a_manifest_alone_names_what_is_taken_of_an_index(site, index, tmp_path):
    """Somebody has signed it; whatever else the index has by now counts for nothing."""
    paths = [site.salt("3008.3", needs="needed"), site.other("needed")]
    site.other("needed", "2.0")
    told = {path.name: path for path in paths}
    build = builds.parsed(*map(str, paths), kind="wheels", python=MINOR)
    with index.files_of(build, str(tmp_path / "state")) as files:
        assert files.keys() == told.keys()
        for name, path in files.items():
            assert pathlib.Path(path).read_bytes() == told[name].read_bytes()
    assert os.listdir(tmp_path / "state") == []
    site.salt("3008.3", needs="other")
    with (
        pytest.raises(SafeUpdateError, match=r"pip cannot download.*Nothing was changed"),
        index.files_of(build, str(tmp_path / "state")),
    ):
        pass


def test_what_a_killed_process_has_left_is_removed(site, index, tmp_path):
    site.salt("3008.3")
    left = tmp_path / "state" / "index-left"
    left.mkdir(parents=True)
    with index.fetched("3008.3", str(tmp_path / "state")):
        assert not left.exists()


def test_without_pip_it_is_said_what_to_do(site):
    with pytest.raises(SafeUpdateError, match=r"has no pip for Python 3.1.*install pip there"):
        Index([], "3.1", run, {}).versions()
