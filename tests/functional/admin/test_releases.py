"""What an earlier release has written is read by this version as the release itself read it."""

import pytest

from saltext_safeupdate import __version__
from tests.support import releases


def _missing(before, now, where=""):
    """Return what was there before and is not so now. What has been added since does not count."""
    if isinstance(before, dict) and isinstance(now, dict):
        gone = [f"{where}/{key} is gone" for key in before if key not in now]
        both = [key for key in before if key in now]
        return gone + [each for key in both for each in _missing(before[key], now[key], key)]
    return [] if before == now else [f"{where}: {before!r} is read as {now!r}"]


def _listed(value):
    """Return the same with lists as mappings, so that what is in them may have more as well."""
    if isinstance(value, list):
        return {str(number): _listed(each) for number, each in enumerate(value)} | {
            "how many": len(value)
        }
    if isinstance(value, dict):
        return {key: _listed(each) for key, each in value.items()}
    return value


@pytest.mark.parametrize("release", releases.captured())
def test_everything_that_a_release_has_stored_is_read(release, tmp_path):
    before = releases.unpack(release, tmp_path)
    # It also had which minions had returned a job; nobody reads that any more.
    before["published"] = [jid for jid, *_ in before["published"]]
    # Nobody knows whether it has noted each end of a job, so none of its jobs goes out again.
    before["again"][2] = []
    assert _missing(_listed(before), _listed(releases.read(tmp_path))) == []


def test_this_version_reads_what_it_stores(tmp_path):
    """The capture has one of each thing: a later release can do it again."""
    releases.write(tmp_path)
    found = releases.read(tmp_path)
    assert {key for key, value in found.items() if not value} == {"claimed by another", "problems"}
    assert __version__ in str(found["report"])
