"""Which upgrade steps are due."""

import pytest

from saltext_safeupdate.core.prepare import upgrade_steps

OLD, NEW = {"salt": "3006.28"}, {"salt": "3007.15"}


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "steps"


def _have(directory, *names):
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).touch(0o755)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("3006.28", "3007.15", ["3007", "3007-b", "3007.9-a"]),
        ("3006.28", "3008.3", ["3007", "3007-b", "3007.9-a", "3007.16", "3008.1"]),
        ("3007.15-1", "1:3007.16+ds-2", ["3007.16"]),
        ("3007.8", "3007.9", ["3007.9-a"]),
        ("3007.9", "3007.9-2", []),
        ("3008.3", "3006.28", []),
        ("3008.3", "3008.3", []),
    ],
)
def test_those_between_two_versions_in_their_order(directory, old, new, expected):
    _have(directory, "3007-b", "3007", "3007.9-a", "3007.16", "3006.28", "3008.1", "3009")
    found = upgrade_steps.due(
        str(directory), {"salt": old, "python": "3.11"}, {"salt": new, "python": "3.14"}
    )
    assert found == expected


def test_what_is_no_step_is_left_alone(directory):
    _have(directory, "3007~", "3007.dpkg-old", "README", ".3007", "3007-a b", "3007-kept")
    _have(directory, "3007-text")
    (directory / "3007-text").chmod(0o644)
    assert upgrade_steps.due(str(directory), OLD, NEW) == ["3007-kept"]


def test_there_may_be_none(directory):
    assert upgrade_steps.due(str(directory), OLD, NEW) == []
    _have(directory, "3007")
    assert upgrade_steps.due(str(directory), OLD, {}) == []
