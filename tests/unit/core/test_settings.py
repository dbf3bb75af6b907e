import dataclasses
import os
import re

import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.settings import Settings, effective, from_mapping, is_proxy, of_minion

SECONDS = [each.name for each in dataclasses.fields(Settings) if isinstance(each.default, float)]


def test_nothing_given_means_the_defaults():
    assert from_mapping(None) == from_mapping({}) == Settings()


def test_what_is_given_counts():
    settings = from_mapping({"jobs_timeout": 5, "service": "venv-salt-minion"})
    assert settings == Settings(jobs_timeout=5.0, service="venv-salt-minion")
    assert isinstance(settings.jobs_timeout, float)


@pytest.mark.parametrize(
    ("given", "packages"),
    [("salt", ("salt",)), (["a", "b"], ("a", "b")), ((), ())],
)
def test_packages_are_one_name_or_several(given, packages):
    assert from_mapping({"packages": given}).packages == packages


def test_the_database_is_in_the_state_dir():
    assert from_mapping({"state_dir": "/srv/x"}).database == "/srv/x/safeupdate.db"


def test_every_duration_says_so_in_its_name():
    assert SECONDS
    assert all(name.endswith(("_timeout", "_interval", "_age", "_jitter")) for name in SECONDS)


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", [0, -1, "10", None, True, float("nan"), float("inf"), [], "10s"])
def test_a_duration_is_a_finite_number_above_zero(name, value):
    with pytest.raises(InputError, match=name):
        from_mapping({name: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state_dir", "relative/dir"),
        ("state_dir", ""),
        ("run_dir", 3),
        ("service", None),
        ("service", ""),
        ("packages", {"salt": None}),
        ("packages", [""]),
        ("packages", [1]),
        ("packages", None),
    ],
)
def test_other_values_are_checked_too(key, value):
    with pytest.raises(InputError, match=f"safeupdate:{key}"):
        from_mapping({key: value})


@pytest.mark.parametrize("given", ["", [], "text", 0, False])
def test_it_must_be_a_mapping(given):
    with pytest.raises(InputError, match="must be a mapping"):
        from_mapping(given)


def test_an_unknown_key_is_named_with_the_known_ones():
    with pytest.raises(InputError, match=r"safeupdate:job_timeout.*jobs_timeout.*state_dir"):
        from_mapping({"job_timeout": 3})


@pytest.mark.parametrize(
    ("given", "settings", "wrong"),
    [
        (None, Settings(), []),
        ({"attempts": 3}, Settings(attempts=3), []),
        ({"attempts": 3, "rerun": 1, "nosuch": 1}, Settings(attempts=3), ["rerun", "nosuch"]),
        ({1: 1}, Settings(), ["safeupdate:1"]),
        ("text", Settings(), ["must be a mapping"]),
    ],
)
def test_what_is_not_valid_counts_as_not_given_and_is_told_of(given, settings, wrong):
    found, problems = effective(given)
    assert found == settings
    assert len(problems) == len(wrong)
    assert all(word in problem for word, problem in zip(wrong, problems, strict=True))


def test_every_key_is_explained():
    for field in dataclasses.fields(Settings):
        assert f"\n    {field.name}\n" in Settings.__doc__


def _of(**opts):
    return of_minion(opts)[0]


def test_the_minion_of_etc_salt_has_the_defaults():
    assert _of(conf_file="/etc/salt/minion", id="a") == _of() == Settings()
    assert Settings().instance == ""


def test_every_other_minion_has_its_own_places():
    """One publication reaches both under one JID: a common ledger would know it and lose one."""
    found = [
        _of(conf_file=path, id="a")
        for path in (
            "/etc/salt/minion",
            "/etc/salt2/minion",
            "/etc/venv-salt-minion/minion",
            "/etc/salt/a-b/minion",
            "/etc/salt/a/b/minion",
            "/etc/salt a%b/minion",
        )
    ]
    for name in ("state_dir", "run_dir", "steps_dir", "instance", "database"):
        assert len({getattr(settings, name) for settings in found}) == len(found)
    for settings in found[1:]:
        assert os.path.dirname(settings.state_dir) == "/var/lib/salt-safeupdate/minions"
        assert os.path.dirname(settings.run_dir) == "/run/salt-safeupdate/minions"
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", settings.instance)
    assert found[1].instance.startswith("etc-salt2-")
    assert found[2].steps_dir == "/etc/venv-salt-minion/safeupdate/steps"


def test_a_minion_that_is_renamed_is_the_same_one():
    both = [_of(conf_file="/etc/salt2/minion", id=name) for name in ("a", "b")]
    assert both[0] == both[1]


def test_another_way_to_the_same_configuration_is_the_same_minion(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    paths = [f"{tmp_path}/{name}/minion" for name in ("real", "link", "link/../real")]
    assert len({_of(conf_file=path) for path in paths}) == 1


def test_a_minion_below_another_root_has_its_places_there():
    settings = _of(conf_file="/srv/x/etc/salt/minion", root_dir="/srv/x")
    assert settings.state_dir.startswith("/srv/x/var/lib/salt-safeupdate/minions/srv-x-etc-salt-")
    assert settings.run_dir.startswith("/srv/x/run/salt-safeupdate/minions/")


def test_what_is_given_stays_and_what_is_not_valid_does_not_count():
    opts = {"conf_file": "/etc/salt2/minion", "safeupdate": {"state_dir": "/srv/x", "run_dir": 3}}
    settings, problems = of_minion(opts, service="salt2")
    assert settings.state_dir == "/srv/x"
    assert settings.run_dir == _of(conf_file="/etc/salt2/minion").run_dir
    assert settings.instance.startswith("srv-x-")
    assert settings.service == "salt2"
    assert ["safeupdate:run_dir" in problem for problem in problems] == [True]
    assert of_minion({"safeupdate": {"service": "a"}}, service="b")[0].service == "a"
    assert of_minion({"safeupdate": []})[1]


def test_a_proxy_is_no_minion_of_the_host():
    assert is_proxy({"conf_file": "/etc/salt/proxy"})
    assert is_proxy({"conf_file": "/etc/salt/minion", "proxy": {"proxytype": "dummy"}})
    assert not is_proxy({"conf_file": "/etc/salt/minion"})
    assert not is_proxy({})
    proxies = [_of(conf_file="/etc/salt/proxy", id=name) for name in ("a", "b")]
    assert len({settings.state_dir for settings in (*proxies, Settings())}) == 3


def test_builds_come_from_a_directory_or_from_the_index_of_pip():
    for place in ("/srv/builds", "salt://builds", "index"):
        assert from_mapping({"slots_source": place}).slots_source == place
    for place in ("index2", "builds", "http://127.0.0.1/"):
        with pytest.raises(InputError, match="'safeupdate:slots_source' must be"):
            from_mapping({"slots_source": place})
