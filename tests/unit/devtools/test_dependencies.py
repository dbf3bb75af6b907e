"""What this project and its extras bring has a lower bound: nothing old is installed by chance."""

import configparser
import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]
_CONFIG = configparser.ConfigParser()
_CONFIG.read(REPO / "setup.cfg")
REQUIREMENTS = {
    "": _CONFIG["options"]["install_requires"],
    **_CONFIG["options.extras_require"],
}
# A theme of the docs, which is numbered by dates.
FREE = {"furo"}


def _all():
    return [(extra, line) for extra, text in REQUIREMENTS.items() for line in text.split()]


@pytest.mark.parametrize(("extra", "requirement"), _all())
def test_each_requirement_has_a_lower_bound(extra, requirement):
    assert re.search(r"[>=]=\d", requirement) or requirement in FREE


def test_users_get_salt_and_nothing_else():
    """An extra that brings more has to be looked at for known vulnerabilities before a release."""
    assert set(REQUIREMENTS) == {"", "tests", "lint", "docs", "changelog"}
    assert REQUIREMENTS[""].split() == ["salt>=3006"]
