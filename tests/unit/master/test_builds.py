"""What a master says of the builds that it has."""

import json
import pathlib

import pytest

from saltext_safeupdate.core.errors import InputError, SafeUpdateError
from saltext_safeupdate.master import builds
from tests.support import builds as made


@pytest.fixture
def opts(tmp_path):
    roots = tmp_path / "roots"
    (roots / "builds" / "below").mkdir(parents=True)
    return {
        "file_roots": {"base": [str(roots)]},
        "fileserver_backend": ["roots"],
        "cachedir": str(tmp_path / "cache"),
        "extension_modules": str(tmp_path / "modules"),
        "fileserver_events": False,
        "fileserver_followsymlinks": True,
        "fileserver_ignoresymlinks": False,
        "file_ignore_regex": [],
        "file_ignore_glob": [],
        "fileserver_list_cache_time": 0,
        "__role": "master",
    }


@pytest.fixture
def place(opts):
    return pathlib.Path(opts["file_roots"]["base"][0], "builds")


def _build(place, version, **said):
    name = f"salt-{version}"
    path = made.tarball(place / f"{name}.tar.xz", made.onedir(version))
    told = made.described(path, **{"name": name, "version": version, **said})
    (place / f"{name}.json").write_text(json.dumps(told))


@pytest.mark.parametrize("url", ["salt://builds", "salt://builds/", "{place}"])
def test_it_lists_what_its_minions_would_find(opts, place, url):
    for version in ("3007.9", "3007.20", "3008.3"):
        _build(place, version)
    _build(place / "below", "3006.28")
    (place / "broken.json").write_text("{}")
    found = builds.avail(opts, url.format(place=place))
    told = {
        series: [each["version"] for each in rows] for series, rows in found["versions"].items()
    }
    assert told == {"3008": ["3008.3"], "3007": ["3007.20", "3007.9"]}
    assert list(told) == ["3008", "3007"]
    (problem,) = found["problems"]
    assert problem.startswith("broken.json: The manifest is refused")
    (entry,) = found["versions"]["3008"]
    assert (entry["kind"], entry["machine"], entry["python"]) == ("onedir", made.MACHINE, "")


def test_with_keys_what_nobody_has_signed_is_refused(opts, place):
    _build(place, "3008.3")
    found = builds.avail(opts, "salt://builds", "/etc/salt/builds.gpg")
    assert found["versions"] == {}
    assert "has no signature" in found["problems"][0]


@pytest.mark.parametrize("source", ["builds", "", 5, None, "http://x/y"])
def test_what_is_no_source_is_refused(opts, source):
    with pytest.raises(InputError, match="'source' must be"):
        builds.avail(opts, source)


def test_a_keyring_that_is_no_path_is_refused(opts):
    with pytest.raises(InputError, match="'keyring' must be"):
        builds.avail(opts, "salt://builds", "keys")


def test_a_directory_that_is_not_there_is_told(opts):
    with pytest.raises(SafeUpdateError, match="cannot be listed"):
        builds.avail(opts, "/nonexistent/builds")
    assert builds.avail(opts, "salt://none") == {"versions": {}, "problems": []}
