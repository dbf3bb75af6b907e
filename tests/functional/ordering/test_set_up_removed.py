"""
A run that owns the directory with the configuration of the minion.

| what the run does with other files | our file and its stand-ins | said |
| --- | --- | --- |
| leaves those with "_" alone, as the public formula does | stay | nothing |
| removes them | our file is removed, the stand-ins stay | in the log and by `check` |
| removes them, and sets the minion up again | are there again | nothing |
"""

import shutil

import pytest
import salt.config

from saltext_safeupdate.admin.setup.set_up import SetUp
from saltext_safeupdate.admin.status import checks_of_files
from saltext_safeupdate.ordering import set_up_gone
from saltext_safeupdate.this_host import enabled


@pytest.fixture
def host(minion):
    """A minion that has read its set-up from a file."""
    minion.opts["conf_file"] = str(minion.path / "etc" / "minion")
    (minion.path / "etc" / "minion.d").mkdir(parents=True)
    (minion.path / "roots" / "minion.d").mkdir()
    (minion.path / "roots" / "minion.d" / "f.conf").write_text("log_level: error\n")
    SetUp(minion.host, None, False).carry_out()
    assert enabled(_read(minion))
    return minion


def _read(minion):
    return salt.config.minion_config(minion.opts["conf_file"], minion_id="minion")


def _owned(host, **more):
    directory = str(host.path / "etc" / "minion.d")
    wanted = {"name": directory, "source": "salt://minion.d", "clean": True, **more}
    return {"file.recurse": [{key: each} for key, each in wanted.items()]}


@pytest.mark.parametrize(
    ("more", "again", "stays"),
    [
        pytest.param({"exclude_pat": "_*"}, False, True, id="without Salt's own files"),
        pytest.param({}, False, False, id="everything"),
        pytest.param({}, True, True, id="everything and set up again"),
    ],
)
def test_what_becomes_of_the_set_up(host, caplog, more, again, stays):
    content = {"owned": _owned(host, **more)}
    if again:
        content["ours"] = {"safeupdate.enabled": [{"stop_guard": False}]}
    results = host.apply(content)
    assert results["owned"]["result"] is True, results
    assert (host.path / "etc" / "minion.d" / "f.conf").exists()
    assert enabled(_read(host)) is stays
    assert (set_up_gone.PROBLEM in caplog.text) is not stays
    found = [problem.code for problem in checks_of_files.set_up_removed(host.host)]
    assert found == [] if stays else ["set-up-removed"]
    # What the minion that runs asks for is there in any case.
    assert len(list((host.path / "etc-safeupdate").rglob("*.py"))) == 3


def test_it_is_not_said_if_nobody_has_removed_anything(host, caplog):
    shutil.rmtree(host.path / "etc" / "minion.d" / "absent", ignore_errors=True)
    (host.path / "etc" / "minion.d" / "_safeupdate.conf").unlink()
    host.apply({"nothing": {"test.nop": []}})
    # Somebody had done it before the run, and 'check' says it.
    assert set_up_gone.PROBLEM not in caplog.text
    assert list(checks_of_files.set_up_removed(host.host))
