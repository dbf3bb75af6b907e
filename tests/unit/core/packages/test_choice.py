import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.packages.choice import choose, matches, of_series


@pytest.mark.parametrize(
    ("full", "asked", "named"),
    [
        ("3008.3", "3008.3", True),
        ("3008.3-1", "3008.3", True),
        ("3008.3-1", "3008.3-1", True),
        ("1:3008.3-1", "3008.3", True),
        ("1:3008.3-1", "3008.3-1", True),
        ("1:3008.3-1", "1:3008.3-1", True),
        ("3006.0+dfsg-2", "3006.0+dfsg", True),
        ("3008.3-0-1", "3008.3-0", True),
        ("3008.30-1", "3008.3", False),
        ("3008.3+moved", "3008.3", False),
        ("3008.3-1", "3008", False),
        ("3008.3-2", "3008.3-1", False),
        ("1:3008.3", "2:3008.3", False),
    ],
)
def test_a_version_is_named_in_full_or_by_its_upstream_part(full, asked, named):
    assert matches(full, asked) is named


def test_each_package_gets_its_newest_match():
    offers = {
        "salt-common": ["3008.3-2", "3008.3-1", "3007.15-1"],
        "salt-minion": ["3008.3-1", "3007.15-1"],
    }
    assert choose("3008.3", offers, {}) == {"salt-common": "3008.3-2", "salt-minion": "3008.3-1"}


def test_what_is_installed_needs_no_offer_and_is_not_exchanged_for_a_rebuild():
    offers = {"salt-minion": ["3007.15-2", "3007.15-1"], "salt-common": []}
    installed = {"salt-minion": "3007.15-1", "salt-common": "3007.15-1"}
    assert choose("3007.15", offers, installed) == installed


def test_of_a_series_it_is_the_newest_release_that_all_packages_have():
    offers = {
        "salt-common": ["1:3008.4-1", "1:3008.3-2", "3007.16-1", "3007.15-1"],
        "salt-minion": ["1:3008.3-1", "3007.16-1"],
    }
    older = {"salt-common": "3007.16-1", "salt-minion": "3007.16-1"}
    newer = {"salt-common": "1:3008.3-2", "salt-minion": "1:3008.3-1"}
    assert choose("3008", offers, older) == newer
    assert choose("3007", offers, newer) == older
    for series in ("3006", "300"):
        with pytest.raises(InputError):
            choose(series, offers, older)


@pytest.mark.parametrize(
    ("full", "asked", "named"),
    [
        ("3008.3", "3008", True),
        ("1:3008.3-1", "3008", True),
        ("3008.3-1", "300", False),
        ("3008.3", "3008.3", False),
        ("30080.3", "3008", False),
    ],
)
def test_a_series_names_all_of_its_versions(full, asked, named):
    assert of_series(full, asked) is named


def test_what_nobody_offers_is_refused_with_what_there_is():
    with pytest.raises(InputError) as caught:
        choose("3009.1", {"salt-minion": ["3008.3-1", "3007.15-1"], "salt-common": []}, {})
    assert str(caught.value).startswith("salt-minion is not on offer in version 3009.1; ")
    assert "salt-common (none); salt-minion 3008.3-1, 3007.15-1" in str(caught.value)
