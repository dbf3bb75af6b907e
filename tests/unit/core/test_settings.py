import dataclasses

import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.settings import Settings, effective, from_mapping

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
    assert all(name.endswith(("_timeout", "_interval", "_age")) for name in SECONDS)


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
