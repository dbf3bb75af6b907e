"""Reports and metrics in files, from rollouts in the cache that Salt has by default."""

import dataclasses
import os
import pathlib
import re
import stat
import time

import pytest
import salt.config
import salt.loader

from saltext_safeupdate.fleet import report
from saltext_safeupdate.fleet.rollout import Mode
from saltext_safeupdate.master import reports
from saltext_safeupdate.master.store import ROLLOUTS, Store
from tests.unit.fleet.world import Host, World

# Options of 'salt-run', which are in its configuration only.
SHELL = {"skip_grains": False, "async": False, "eauth": ""}


@pytest.fixture
def opts(tmp_path):
    made = salt.config.DEFAULT_MASTER_OPTS.copy()
    places = dict.fromkeys(("cachedir", "root_dir", "extension_modules"), str(tmp_path))
    made.update(places, pki_dir=str(tmp_path / "pki"), __role="master")
    (tmp_path / "pki" / "minions").mkdir(parents=True)
    return made


@pytest.fixture
def rollout(opts):
    found = World([Host("m1"), Host("m2")], soak=0).run(3600).rollout
    # It has ended just now: older ones are in no metrics.
    found.looked = time.time()
    Store(opts).save_rollout(found)
    return found


@pytest.fixture
def run(opts):
    """Return the runner as 'salt-run' has it in a shell."""
    return salt.loader.runner({**opts, **SHELL}, utils={}, context={})


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_report_is_written_for_its_owner_and_replaced(run, rollout, tmp_path):
    path = tmp_path / "r.html"
    assert run["safeupdate.report"]("r1", str(path)) == str(path)
    assert mode(path) == 0o600
    assert report.MARK in path.read_text()
    assert run["safeupdate.report"]("r1", str(path), public=True) == str(path)
    assert mode(path) == 0o644
    assert [p.name for p in tmp_path.iterdir() if "r.html" in p.name] == ["r.html"]


def test_what_is_no_report_is_left_alone(run, rollout, tmp_path):
    other = tmp_path / "shadow"
    other.write_text("root:x")
    with pytest.raises(Exception, match="is no report, so it was left alone"):
        run["safeupdate.report"]("r1", str(other))
    assert other.read_text() == "root:x"
    run["safeupdate.report"]("r1", str(other), force=True)
    assert report.MARK in other.read_text()
    link = tmp_path / "link"
    link.symlink_to(other)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "."):
        with pytest.raises(Exception, match="is no regular file"):
            run["safeupdate.report"]("r1", str(tmp_path / name), force=True)
    assert link.is_symlink()


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [
        ("r2", "r.html", "no rollout 'r2'. The newest are: r1"),
        ("../r1", "r.html", "no name of a rollout"),
        ("r1", "gone/r.html", "cannot be written: No such file"),
    ],
)
def test_what_cannot_be_done_is_said(run, rollout, tmp_path, monkeypatch, name, path, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=said):
        run["safeupdate.report"](name, path)
    assert not list(tmp_path.glob("*.html"))


def test_metrics_for_a_collector(run, rollout, tmp_path):
    text = run["safeupdate.metrics"]()
    assert 'salt_safeupdate_rollout_minions{rollout="r1",step="done"} 2' in text
    path = tmp_path / "safeupdate.prom"
    for _ in range(2):
        assert run["safeupdate.metrics"](str(path)) == str(path)
    assert path.read_text() == run["safeupdate.metrics"]()
    assert mode(path) == 0o644
    other = tmp_path / "other.prom"
    other.write_text("node_something 1\n")
    for name, said in (("m.txt", "read '.*prom' only"), ("other.prom", "left alone")):
        with pytest.raises(Exception, match=said):
            run["safeupdate.metrics"](str(tmp_path / name))
    assert other.read_text() == "node_something 1\n"


def test_of_many_that_are_over_the_newest_are_listed(opts, rollout):
    """A policy begins one every ten minutes: each of them would be 21 series for a week."""
    store = Store(opts)
    rollout.mode = Mode.FINISHED
    for number in range(reports.MOST_OVER + 5):
        plan = dataclasses.replace(rollout.plan, id=f"over{number:03}")
        later = dataclasses.replace(rollout, plan=plan, looked=rollout.looked + number)
        store.save_rollout(later)
    plan = dataclasses.replace(rollout.plan, id="runs")
    store.save_rollout(dataclasses.replace(rollout, plan=plan, mode=Mode.RUNNING, looked=1.0))
    text = reports.metrics(store, clock=lambda: rollout.looked + 60)
    listed = set(re.findall('rollout_looked_seconds{rollout="(.*)"}', text))
    newest = {f"over{number:03}" for number in range(5, reports.MOST_OVER + 5)}
    assert listed == newest | {"runs"}


def test_one_that_cannot_be_read_does_not_hide_the_others(opts, rollout):
    store = Store(opts)
    store.cache.write(ROLLOUTS, "broken.head", {"revision": 1})
    text = reports.metrics(store, clock=lambda: rollout.looked)
    assert "salt_safeupdate_rollouts_unreadable 1\n" in text
    assert 'rollout="r1"' in text
    assert 'rollout="r1"' not in reports.metrics(store, clock=lambda: rollout.looked + 30 * 86400)


def test_pathlib_paths_are_not_taken_for_text(opts, rollout, tmp_path):
    with pytest.raises(Exception, match="Give the path"):
        reports.write_report(Store(opts), "r1", pathlib.Path(tmp_path))
