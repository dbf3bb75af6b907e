"""What this project and its extras bring is safe, and so is its code, as far as tools can tell."""

import configparser
import re
import subprocess
import sys
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


# Extras for who develops this; users do not install them.
OF_DEVELOPERS = {"tests", "lint", "docs", "changelog"}
# What users get, with the first version that has no known vulnerability, and that of whatever it
# brings. Nobody can be asked for that here: look it up, and write down what was found.
LOOKED_UP: dict[str, str] = {}


def _not_looked_up(requirements, looked_up):
    """Return what users get and nobody has looked up, or what may be older than it should."""
    found = []
    for extra, text in requirements.items():
        for line in text.split() if extra not in OF_DEVELOPERS else ():
            name, bound = re.fullmatch(r"([\w.-]+)(?:[>=]=([\d.]+))?.*", line).groups()
            least = looked_up.get(name)
            if name != "salt" and (not least or _numbers(bound or "0") < _numbers(least)):
                found.append(f"{extra or 'everybody'}: {line}")
    return found


def _numbers(version):
    return [int(part) for part in version.split(".") if part]


def test_what_users_get_has_been_looked_up_for_vulnerabilities():
    assert _not_looked_up(REQUIREMENTS, LOOKED_UP) == []
    assert REQUIREMENTS[""].split() == ["salt>=3006"]


@pytest.mark.parametrize(
    ("line", "looked_up", "found"),
    [
        ("thing>=2.1", {}, True),
        ("thing>=2.1", {"thing": "2.10"}, True),
        ("thing", {"thing": "2.1"}, True),
        ("thing>=2.10", {"thing": "2.9"}, False),
    ],
)
def test_a_new_extra_is_found(line, looked_up, found):
    requirements = {**REQUIREMENTS, "runner": f"\n{line}\n"}
    expected = [f"runner: {line}"] if found else []
    assert _not_looked_up(requirements, {**LOOKED_UP, **looked_up}) == expected


@pytest.mark.usefixtures("real_process")
@pytest.mark.parametrize("place", ["src/saltext_safeupdate/core/host", "devtools"])
@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("S602", "subprocess.run(sys.argv[1], shell=True, check=True)"),
        ("S301", "pickle.loads(sys.stdin.buffer.read())"),
        ("S324", "hashlib.md5(sys.argv[1].encode())"),
    ],
)
def test_an_unsafe_line_is_found(place, rule, line):
    """By the rules of ./dev lint: those that bandit has."""
    pytest.importorskip("ruff", reason="only with the tools of ./dev")
    argv = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise"]
    text = f"import hashlib, pickle, subprocess, sys\n{line}\n"
    done = subprocess.run(
        [*argv, "--stdin-filename", f"{place}/planted.py", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd=REPO,
    )
    assert done.returncode == 1
    assert f" {rule} " in done.stdout
