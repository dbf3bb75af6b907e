"""The upgrade step of the page: its three programs do what the page says, also twice."""

import pytest

from saltext_safeupdate.core.host.command import run
from saltext_safeupdate.core.prepare.upgrade_steps import Steps
from saltext_safeupdate.core.record.store import Store
from tests.support import documents

PAGE = documents.REPO / "docs" / "topics" / "howto" / "update.md"
STEPS = "/etc/salt/safeupdate/steps"
OLD, NEW = {"salt": "3007.15"}, {"salt": "3008.3"}
PROGRAMS = [block.text for block in documents.blocks(PAGE) if f"# {STEPS}/" in block.text]
BEFORE = ("deb https://repo.example.com/salt/3007 stable main\n", "old_option: 1\n")
AFTER = ("deb https://repo.example.com/salt/3008 stable main\n", "new_option: 1\n")


@pytest.fixture
def host(tmp_path):
    """Return the steps of a host that has the programs of the page, and a look at its files."""
    repository = tmp_path / "etc" / "apt" / "sources.list.d" / "salt.list"
    site = tmp_path / "etc" / "salt" / "minion.d" / "site.conf"
    for path, text in zip((repository, site), BEFORE, strict=True):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    directory = tmp_path / "etc" / "salt" / "safeupdate" / "steps"
    directory.mkdir(parents=True)
    for text in PROGRAMS:
        name = text.splitlines()[1].split()[1].rpartition("/")[2]
        path = directory / name
        path.write_text(text.replace("/etc/", f"{tmp_path}/etc/"))
        path.chmod(0o755)
    steps = Steps(str(directory), Store(str(tmp_path / "state" / "safeupdate.db")))
    return steps, lambda: (repository.read_text(), site.read_text())


def test_they_change_the_host_and_take_it_back(host):
    steps, look = host
    assert len(PROGRAMS) == 3
    (before,), (step,) = steps.before(OLD, NEW), steps.due(OLD, NEW)
    (revert,) = steps.taking_back([before.name, step.name])
    seen = []
    for program in (before, step, revert):
        for _ in range(2):
            run((program.path, "3007.15", "3008.3"), timeout=30)
        seen.append(look())
    assert seen == [(AFTER[0], BEFORE[1]), AFTER, BEFORE]
