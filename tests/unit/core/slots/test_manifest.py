import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_safeupdate.core.errors import VerificationError
from saltext_safeupdate.core.slots import manifest
from tests.support import builds


@pytest.fixture
def told(tmp_path):
    return builds.described(builds.tarball(tmp_path / "salt-3008.3.tar.xz", builds.onedir()))


def _parse(told):
    return manifest.parse(json.dumps(told).encode())


def test_a_sound_one_is_read_as_it_is_written(told):
    found = _parse(told)
    assert (found.name, found.version, found.kind) == (told["name"], "3008.3", "onedir")
    (part,) = found.files.values()
    assert {"sha256": part.sha256, "size": part.size} == told["files"]["salt-3008.3.tar.xz"]
    assert found.size == part.size


def test_another_manifest_is_another_slot(told):
    assert _parse(told).ident == _parse(told).ident
    assert _parse(told).ident != _parse({**told, "unpacked": 5}).ident


HOSTILE = {
    "format": [0, 2, "1", True, 1.0, None],
    "name": ["", ".", "..", "../x", "a/b", "a\nb", "a\0", "-x", "x" * 129, "ä", "a\u202e", 1, None],
    "version": ["", "../3008", "3008.3\n", "latest", 3008.3, None, "3" * 65],
    "kind": ["", "deb", "Onedir", ["onedir"], None],
    "machine": ["", "X86", "x86 64", "a/b", None],
    "python": ["3.11", "3", None, 3.11],
    "unpacked": [0, -1, True, 1.5, "1", None, 1 << 40],
    "extension": ["", "newest", None, 1],
    "files": [
        *({}, [], None, {"../x": {"sha256": "0" * 64, "size": 1}}),
        *({"a": {}}, {"a": {"sha256": "0" * 64}}, {"a": {"sha256": "0" * 63, "size": 1}}),
        {"a": {"sha256": "0" * 64, "size": 1, "url": "x"}},
        {"a": {"sha256": "A" * 64, "size": 1}},
        {"a": {"sha256": "0" * 64, "size": -1}},
        {"a": {"sha256": "0" * 64, "size": True}},
        {"a": {"sha256": "0" * 64, "size": 5 << 30}},
        {name: {"sha256": "0" * 64, "size": 1} for name in "ab"},
    ],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in HOSTILE.items() for value in values]
)
def test_what_is_not_as_described_refuses_it(told, key, value):
    with pytest.raises(VerificationError, match=r"The manifest is refused: .+\.$"):
        _parse({**told, key: value})


@pytest.mark.parametrize("key", list(HOSTILE))
def test_each_key_has_to_be_there(told, key):
    del told[key]
    with pytest.raises(VerificationError):
        _parse(told)


def test_a_key_that_it_does_not_know_may_mean_something(told):
    with pytest.raises(VerificationError, match="'urls'"):
        _parse({**told, "urls": []})


@pytest.mark.parametrize(
    ("files", "python", "works"),
    [
        (["salt-3008.3-py3-none-any.whl", "msgpack-1.0-cp311.whl"], "3.11", True),
        (["salt-3008.3-py3-none-any.whl"], "", False),
        (["salt-3008.3-py3-none-any.whl"], "3.11.4", False),
        (["salt-3008.3.tar.gz"], "3.11", False),
        ([f"{number}.whl" for number in range(manifest.MOST_FILES + 1)], "3.11", False),
    ],
)
def test_wheels_name_the_python_that_they_are_for(told, files, python, works):
    part = {"sha256": "0" * 64, "size": 1}
    told |= {"kind": "wheels", "python": python, "files": dict.fromkeys(files, part)}
    if works:
        assert _parse(told).python == python
    else:
        with pytest.raises(VerificationError):
            _parse(told)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"format": NaN}',
        b'{"format": 1e400}',
        b'{"format": 1, "format": 1}',
        b"[" * 200_000,
        b" " * (manifest.LONGEST + 1),
        b"9" * 100_000,
    ],
    ids=repr,
)
def test_what_is_no_manifest_at_all_is_refused(content):
    with pytest.raises(VerificationError):
        manifest.parse(content)


def test_what_it_quotes_is_one_line_that_no_terminal_obeys(told):
    with pytest.raises(VerificationError) as err:
        _parse({**told, "name": "a\n\x1b[31m\u202e" + "x" * 5000})
    assert str(err.value).isprintable()
    assert len(str(err.value)) < 700


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*HOSTILE, "x"]), inner, max_size=10)
        ),
        max_leaves=20,
    ).map(lambda found: json.dumps(found).encode())
)
def test_whatever_it_is_it_is_read_or_refused(content):
    try:
        found = manifest.parse(content)
    except VerificationError:
        return
    assert found.files
