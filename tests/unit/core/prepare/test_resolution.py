import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.generations.activation import ByRestart
from saltext_safeupdate.core.prepare import resolution
from saltext_safeupdate.core.prepare.resolution import Resolver
from saltext_safeupdate.core.prepare.revisions import PREVIOUS, Previous, Revisions
from saltext_safeupdate.core.record.store import Store
from tests.support.simulated import FakePackages

OWN = ["salt", "salt-minion"]


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "state" / "safeupdate.db"))


@pytest.fixture
def packages():
    found = FakePackages(**dict.fromkeys(OWN, "3007.15-1"))
    found.offers = {name: ["3008.3-1", "3007.15-1", "3006.28-1"] for name in OWN}
    return found


@pytest.fixture
def targets(packages, store, tmp_path):
    def found(wanted, staged=None):
        resolver = Resolver(
            installer=packages,
            own=OWN,
            store=store,
            revisions=Revisions(str(tmp_path / "state"), store, ByRestart(packages)),
            staged=staged or {},
            steps_dir=str(tmp_path / "steps"),
        )
        resolved = resolver.resolve(wanted)
        resolver.refuse(resolved)
        assert resolved.request is wanted
        assert resolved.installed == packages.installed(OWN)
        assert resolved.staged == (resolved.targets == staged)
        return resolved.targets

    return found


def test_the_newest_where_none_is_named(targets):
    assert targets(resolution.request()) == dict.fromkeys(OWN, "3008.3-1")


def test_a_version_without_what_packaging_adds(targets):
    assert targets(resolution.request("3008.3")) == dict.fromkeys(OWN, "3008.3-1")


def test_a_series_is_its_newest_version_on_offer(targets):
    assert targets(resolution.request("3008")) == dict.fromkeys(OWN, "3008.3-1")


@pytest.mark.parametrize("version", ["3009", "3008.4"])
def test_a_version_that_is_not_on_offer(targets, version):
    with pytest.raises(InputError, match="not on offer"):
        targets(resolution.request(version))


def test_what_is_staged_needs_no_offer(packages, targets):
    staged = dict.fromkeys(OWN, "3009.1-1")
    assert targets(resolution.request("3009.1"), staged) == staged
    assert targets(resolution.request(), staged) == dict.fromkeys(OWN, "3008.3-1")


def test_an_older_one_only_where_that_is_meant(targets):
    with pytest.raises(InputError, match="older than the installed"):
        targets(resolution.request("3006.28"))
    assert targets(resolution.request("3006.28", allow_downgrade=True)) == dict.fromkeys(
        OWN, "3006.28-1"
    )


@pytest.mark.parametrize(
    ("new", "old", "refused"),
    [
        ("3008.10", "3008.9", False),
        ("3008.9", "3008.10", True),
        ("1:3006.1", "3008.3", False),
        ("3008.3+a", "3008.3", False),
        ("3008.3-2", "3008.3-10", True),
        ("3008.3", "3008.3", False),
    ],
)
def test_what_is_older(packages, targets, new, old, refused):
    packages.versions = {"salt": old}
    packages.offers = {name: [new] for name in OWN}
    if refused:
        with pytest.raises(InputError, match="older"):
            targets(resolution.request())
    else:
        assert targets(resolution.request())["salt"] == new


def test_nothing_to_update(packages, targets):
    packages.versions.clear()
    with pytest.raises(InputError, match="safeupdate:packages"):
        targets(resolution.request())


def test_what_was_rolled_back_is_refused_and_the_installed_version_is_not(targets, store):
    store.quarantine({"salt": "3008.3-1", "salt-minion": "3007.15-1"}, "u1", "it died.")
    with pytest.raises(InputError, match=r"unquarantine \"'3008\.3-1'\".*: it died\.$"):
        targets(resolution.request())
    assert targets(resolution.request("3007.15"))["salt-minion"] == "3007.15-1"


class TestBack:
    def _keep(self, tmp_path, store, versions):
        path = tmp_path / "kept"
        path.write_text("")
        files = (("salt", "1", str(path), ""),)
        store.set_fact(PREVIOUS, Previous(update="u1", versions=versions, files=files))
        return path

    def test_the_kept_packages(self, tmp_path, store, targets):
        kept = dict.fromkeys(OWN, "3005.1-1")
        self._keep(tmp_path, store, kept)
        assert targets(resolution.request(back=True)) == kept
        assert targets(resolution.request("3005.1", back=True)) == kept

    def test_another_version_is_looked_for(self, tmp_path, store, targets):
        self._keep(tmp_path, store, dict.fromkeys(OWN, "3005.1-1"))
        assert targets(resolution.request("3006.28", back=True)) == dict.fromkeys(OWN, "3006.28-1")

    def test_what_is_not_there_any_more(self, tmp_path, store, targets):
        with pytest.raises(InputError, match="not kept"):
            targets(resolution.request(back=True))
        self._keep(tmp_path, store, dict.fromkeys(OWN, "3005.1-1")).unlink()
        with pytest.raises(InputError, match="not kept"):
            targets(resolution.request(back=True))


def test_a_version_that_became_a_number_on_the_way(packages, targets):
    """Whatever is on offer: 3008.30 may be what was asked for, and is not there."""
    with pytest.raises(InputError, match=r"3008\.3, and 3008\.30 would have"):
        resolution.request(3008.30)
    assert targets(resolution.request(3007.15)) == dict.fromkeys(OWN, "3007.15-1")
    assert targets(resolution.request("3008.3")) == dict.fromkeys(OWN, "3008.3-1")


@pytest.mark.parametrize("version", ["", " ", ["3008.3"], True])
def test_a_version_is_a_text(version):
    with pytest.raises(InputError, match="must be a version"):
        resolution.request(version)


def test_when_is_one_of_two_words():
    with pytest.raises(InputError, match="'idle' or 'now'"):
        resolution.request(when="later")
