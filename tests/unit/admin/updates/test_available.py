"""What is on offer, from simulated packages and from real builds."""

import json
import os
import pathlib
import shutil

import pytest
from salt.exceptions import SaltClientError

from saltext_safeupdate import __version__
from saltext_safeupdate.admin.updates import available
from saltext_safeupdate.admin.updates import builds as of_builds
from saltext_safeupdate.core.errors import CommandError, InputError, SafeUpdateError
from tests.support import builds, documents, this_host

# As the page has it.
PAGE = (documents.REPO / "docs" / "ref" / "builds.md").read_text()
SOURCE = PAGE.partition("salt '*' safeupdate.avail source=")[2].split()[0]


@pytest.fixture
def made(tmp_path):
    made = this_host.simulated(this_host.opts(tmp_path))
    allowed = [str(tmp_path), str(tmp_path / "builds"), "salt://builds"]
    made.opts["safeupdate"]["slots_sources"] = allowed
    made.manager.offers = {
        "salt": ["3008.3", "3007.15", "3007.9", "3006.28"],
        "salt-minion": ["3008.3", "3007.15", "3006.28"],
    }
    return made


@pytest.fixture
def source(tmp_path):
    """The directory of a source, and what adds a build to it."""
    place = tmp_path / "builds"
    place.mkdir()

    def add(version, **said):
        name = f"salt-{version}"
        path = builds.tarball(place / f"{name}.tar.xz", builds.onedir(version))
        told = builds.described(path, **{"name": name, "version": version, **said})
        (place / f"{name}.json").write_text(json.dumps(told))

    add.place = str(place)
    return add


class Master:
    """The file server of a master that has the files of a directory, below ``builds``."""

    def __init__(self, directory, cache):
        self._directory, self._cache = directory, cache
        self.away = False
        self.asked = []
        self.functions = {"cp.list_master": self._list, "cp.cache_file": self._cached}

    def _list(self, saltenv="base", prefix=""):
        if self.away:
            raise SaltClientError("no master")
        self.asked.append((saltenv, prefix))
        found = [f"builds/{name}" for name in os.listdir(self._directory)]
        everything = [*found, "builds/below/salt.json", "builds2/salt.json", "top.sls"]
        return [path for path in everything if path.startswith(prefix)]

    def _cached(self, url):
        self.asked.append(url)
        name = url.rpartition("/")[2].partition("?")[0]
        target = os.path.join(self._cache, name)
        shutil.copy(os.path.join(self._directory, name), target)
        return target


@pytest.fixture
def master(source, tmp_path):
    (tmp_path / "cached").mkdir()
    return Master(source.place, tmp_path / "cached")


def _versions(found):
    return {
        series: [(each["version"], each["source"]) for each in entries]
        for series, entries in found["versions"].items()
    }


def test_without_builds_it_is_what_the_package_manager_has(made):
    found = available.avail(made, {})
    assert list(found["versions"]) == ["3008", "3007", "3006"]
    assert found["versions"]["3007"] == [
        {"version": "3007.15", "source": "packages", "installed": False}
    ], "3007.9 is not there for each package"
    assert found["versions"]["3006"][0]["installed"] is True
    assert found["problems"] == []


def test_what_is_installed_counts_also_if_nobody_offers_it(made):
    made.manager.offers = {"salt": ["3008.3"], "salt-minion": ["3008.3"]}
    assert list(available.avail(made, {})["versions"]) == ["3008", "3006"]


def test_the_series_of_a_package_is_that_of_salt(made):
    made.manager.offers = {name: ["1:3007.15+ds-2", "2:3008.3-1"] for name in this_host.VERSIONS}
    assert _versions(available.avail(made, {})) == {
        "3008": [("2:3008.3-1", "packages")],
        "3007": [("1:3007.15+ds-2", "packages")],
        "3006": [("3006.28", "packages")],
    }


@pytest.mark.parametrize("refresh", [True, False])
def test_the_index_is_refreshed_unless_that_is_not_wanted(made, refresh):
    asked = []
    made.manager.refresh = lambda: asked.append(1)
    available.avail(made, {}, refresh=refresh)
    assert bool(asked) is refresh


def test_without_a_network_what_is_known_is_told(made):
    def fails():
        raise CommandError(("apt-get",), "exit status 100")

    made.manager.refresh = fails
    assert "3008" in available.avail(made, {})["versions"]


def test_a_host_whose_salt_is_from_no_package_sees_its_builds(made, source):
    made.manager = None
    source("3008.3")
    assert _versions(available.avail(made, {}, source.place)) == {
        "3008": [("3008.3", source.place)]
    }


def test_packages_and_builds_are_told_together_newest_first(made, source):
    for version in ("3007.9", "3007.20", "3008.3"):
        source(version)
    made.opts["safeupdate"]["slots_source"] = source.place
    assert _versions(available.avail(made, {})) == {
        "3008": [("3008.3", "packages"), ("3008.3", source.place)],
        "3007": [
            ("3007.20", source.place),
            ("3007.15", "packages"),
            ("3007.9", source.place),
        ],
        "3006": [("3006.28", "packages")],
    }


def test_a_build_is_told_with_what_its_manifest_says(made, source):
    source("3008.3")
    made.manager = None
    ((entry,),) = available.avail(made, {}, f"file://{source.place}")["versions"].values()
    assert entry.pop("size") > 100
    assert entry == {
        "version": "3008.3",
        "source": f"file://{source.place}",
        "build": "salt-3008.3",
        "kind": "onedir",
        "machine": builds.MACHINE,
        "signed_by": "",
        "problem": "",
    }


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"machine": "s390x"}, f"It is for s390x, and this host is {builds.MACHINE}."),
        ({"machine": "any"}, ""),
        ({"extension": "99.1"}, f"needs version 99.1 of safeupdate, and this is {__version__}."),
        ({"extension": __version__}, ""),
    ],
)
def test_what_does_not_fit_this_host_is_listed_with_the_reason(made, source, said, problem):
    made.manager = None
    source("3008.3", **said)
    ((entry,),) = available.avail(made, {}, source.place)["versions"].values()
    assert entry["problem"].endswith(problem)
    assert bool(entry["problem"]) is bool(problem)


def test_wheels_for_another_python_do_not_fit(made, tmp_path):
    made.manager = None
    path = builds.salt_wheel(tmp_path / "salt-3008.3-py3-none-any.whl")
    told = builds.described(path, kind="wheels", python="3.99", machine="any")
    (tmp_path / "salt.json").write_text(json.dumps(told))
    ((entry,),) = available.avail(made, {}, str(tmp_path))["versions"].values()
    assert entry["problem"] == "It needs Python 3.99, which this host does not have."


def test_wheels_do_not_start_with_what_goes_with_a_virtual_environment(made, tmp_path, monkeypatch):
    """It is activated where somebody types 'salt-call'; a slot would end with it."""
    made.manager = None
    path = builds.salt_wheel(tmp_path / "salt-3008.3-py3-none-any.whl")
    told = builds.described(path, kind="wheels", python="3.99", machine="any")
    (tmp_path / "salt.json").write_text(json.dumps(told))
    venv, system = tmp_path / "venv", tmp_path / "usr"
    for top in (venv, system):
        (top / "bin").mkdir(parents=True)
        (top / "bin" / "python3.99").touch(0o755)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "linked").symlink_to(venv / "bin")

    def look(*places):
        monkeypatch.setenv("PATH", os.pathsep.join(map(str, places)))
        ((entry,),) = available.avail(made, {}, str(tmp_path))["versions"].values()
        return entry["problem"], of_builds.interpreter("3.99")

    none = ("It needs Python 3.99, which this host does not have.", "")
    assert look(venv / "bin", tmp_path / "linked", "bin") == none
    assert look(venv / "bin", system / "bin") == ("", str(system / "bin" / "python3.99"))


def test_a_manifest_that_is_refused_is_a_problem_in_one_visible_line(made, source):
    source("3008.3")
    with open(f"{source.place}/b\x1b[2J.json", "w", encoding="utf-8") as file:
        file.write('{"format": 1, "\\u202e": 2}')
    found = available.avail(made, {}, source.place)
    (problem,) = found["problems"]
    assert problem.isprintable()
    assert "The manifest is refused" in problem
    assert ("3008.3", source.place) in _versions(found)["3008"]


@pytest.mark.parametrize("url", [SOURCE, f"{SOURCE}/"])
def test_a_source_of_the_master_is_listed_and_nothing_but_manifests_fetched(
    made, source, master, url
):
    made.manager = None
    source("3008.3")
    assert list(available.avail(made, master.functions, url)["versions"]) == ["3008"]
    assert master.asked == [("base", "builds/"), "salt://builds/salt-3008.3.json"]


def test_it_may_be_in_another_environment(made, source, master):
    made.manager = None
    source("3008.3")
    made.opts["safeupdate"]["slots_source"] = "salt://builds?saltenv=prod"
    available.avail(made, master.functions)
    assert master.asked == [("prod", "builds/"), "salt://builds/salt-3008.3.json?saltenv=prod"]


def test_a_master_that_is_away_is_told(made, master):
    master.away = True
    with pytest.raises(SafeUpdateError, match=r"cannot be listed: no master.*Nothing was changed"):
        available.avail(made, master.functions, "salt://builds")


# The administrator has allowed "/TOP/builds" and "salt://builds", and whoever calls names this.
NAMED = ["", "builds", "../builds", "http://x/y", 5, ["/x"], True, "index", "/", "/srv/builds"]
NAMED += ["salt://", "salt://other", "salt://builds?saltenv=dev", "salt://builds/../other"]


@pytest.mark.parametrize("named", NAMED)
def test_a_source_that_the_minion_does_not_allow_is_refused(made, master, named):
    with pytest.raises(InputError, match=r"not one that this minion allows \(packages.*Nothing"):
        available.avail(made, master.functions, named)
    assert master.asked == []


def test_a_directory_that_leads_out_of_an_allowed_one_is_refused(made, source):
    for named in (f"{source.place}/../other", f"{source.place}/below", f"{source.place}-more"):
        with pytest.raises(InputError, match="not one that this minion allows"):
            available.avail(made, {}, named)


def _all_may_write(place):
    place.chmod(0o777)


def _of_another_user(place):
    os.chown(place, 1, 1)


def _the_one_above(place):
    place.parent.chmod(0o775)


def _a_link(place):
    place.rename(place.parent / "real")
    place.symlink_to("real")


def _a_manifest_of_another_user(place):
    os.chown(place / "salt-3008.3.json", 1, 1)


def _a_manifest_that_all_may_write(place):
    (place / "salt-3008.3.json").chmod(0o666)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    "change",
    [
        *(_all_may_write, _of_another_user, _the_one_above, _a_link),
        *(_a_manifest_of_another_user, _a_manifest_that_all_may_write),
    ],
)
def test_a_source_to_which_others_can_write_has_no_builds(made, source, change):
    made.manager = None
    source("3008.3")
    assert available.avail(made, {}, source.place)["versions"]
    change(pathlib.Path(source.place))
    try:
        found = available.avail(made, {}, source.place)
    except SafeUpdateError as err:
        problem = str(err)
    else:
        assert found["versions"] == {}
        (problem,) = found["problems"]
    assert f"The builds in {source.place} are not used: " in problem


def test_with_keys_a_build_without_a_signature_is_none(made, source):
    made.manager = None
    made.opts["safeupdate"]["slots_keyring"] = "/etc/salt/builds.gpg"
    source("3008.3")
    found = available.avail(made, {}, source.place)
    assert found["versions"] == {}
    assert "'safeupdate:slots_keyring' requires one" in found["problems"][0]
