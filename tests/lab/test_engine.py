"""Updates on request: up, down, back, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from devtools.command import run
from devtools.lab.container import Lab
from tests.lab.engine import NEW, OLD, QUICK, EngineScene, changes, deb, own, skipped
from tests.lab.scene import STATE_DIR
from tests.lab.slow import slow_host


@pytest.fixture
def make_scene(lab: Lab, site: Path, begin: Callable[[Any], Any]) -> Callable[..., EngineScene]:
    def make(version: str = OLD, **kwargs: Any) -> EngineScene:
        return begin(EngineScene(lab, site, version, **{"config": QUICK, **kwargs})).up()

    return make


def test_up_back_and_up_again(make_scene: Callable[..., EngineScene]) -> None:
    scene = make_scene(offers=[deb(OLD), deb(NEW)])
    plan = scene.call("safeupdate.plan", refresh=False)
    assert plan["changes"] == {}, "the index is not refreshed, so nothing new is known"
    plan = scene.call("safeupdate.plan")
    assert plan["changes"] == changes(OLD, NEW)
    record = scene.update()
    assert record["phase"] == "committed", record
    scene.assert_runs(NEW)
    assert scene.phases() == [
        "requested", "checking", "staging", "waiting", "installing", "delivering", "stepping",
        "restarting", "watching", "committed",
    ]  # fmt: skip
    revisions = scene.call("safeupdate.revisions")
    assert revisions["active"] == own(NEW)
    assert revisions["previous"] == own(OLD)
    first = _inventory(scene)

    refused = scene.call("safeupdate.update", OLD)
    assert "allow_downgrade=True" in refused
    # Back needs no repository.
    scene.container.offer()
    back = scene.call("safeupdate.rollback")
    assert scene.ended(back["update"])["phase"] == "committed"
    scene.assert_runs(OLD)
    assert scene.call("safeupdate.revisions")["skipped"][0]["version"] == NEW

    # What was left is not installed by whatever state, until that is allowed.
    scene.container.offer(deb(OLD), deb(NEW))
    scene.sls("latest", "minion:\n  pkg.latest:\n    - name: salt-minion\n    - refresh: True\n")
    (ran,) = scene.returned(scene.publish("state.apply", "latest"))["return"].values()
    assert ran["result"] is False
    assert "safeupdate.unquarantine" in ran["comment"]
    assert scene.call("safeupdate.unquarantine", NEW) == skipped(NEW)
    (ran,) = scene.returned(scene.publish("state.apply", "latest"))["return"].values()
    assert ran["result"] is True, ran
    assert scene.wait_end()["phase"] == "committed"
    scene.assert_runs(NEW)
    _assert_bounded([first, _inventory(scene)])


@pytest.mark.soak
def test_altered_is_staged_again_and_staged_needs_no_network(
    make_scene: Callable[..., EngineScene],
) -> None:
    scene = make_scene(offers=[deb(OLD), deb(NEW)])
    (staged,) = scene.call("safeupdate.stage", NEW)["files"]
    content = scene.container.path(staged["path"]).read_bytes()
    scene.container.path(staged["path"]).write_bytes(content[:-1] + b"!")
    again = scene.call("safeupdate.stage", NEW)
    assert "SHA-256" in again["staged_again"]
    (staged,) = again["files"]
    assert scene.container.path(staged["path"]).read_bytes() == content
    scene.container.run(["mount", "-t", "tmpfs", "none", "/srv/repo"])
    # salt #69219: what the package manager had fetched is gone when it is needed.
    scene.container.run(["apt-get", "clean"])
    link = ["ip", "-n", scene.container.network.name, "link", "set", "lo"]
    run([*link, "down"], timeout=30)
    try:
        asked = scene.salt_call("--local", "safeupdate.update", f"'{NEW}'")
        assert scene.ended(asked["update"])["phase"] == "committed"
    finally:
        run([*link, "up"], timeout=30)
    scene.assert_runs(NEW)


def test_a_host_with_little_time_is_no_reason_to_go_back(
    make_scene: Callable[..., EngineScene],
) -> None:
    """The master has a port, too, which is not in the name of the queue."""
    settings = {"stable_interval": 1, "watch_timeout": 8}
    config = {"safeupdate": settings, "master": "127.0.0.1:4506"}
    scene = make_scene(offers=[deb(OLD), deb(NEW)], config=config)
    asked = scene.ask(NEW)
    scene.wait_phase("restarting", "watching")
    with slow_host(scene.container, 0.15):
        record = scene.ended(asked["update"], 600)
    assert record["phase"] == "committed", record
    (newest,) = scene.call("safeupdate.history", limit=1)
    at = {row["phase"]: row["at"] for row in newest["phases"]}
    watched = at["committed"] - at["watching"]
    print(f"committed after {watched:.0f} s, with a time-out of {settings['watch_timeout']} s")
    assert watched > settings["watch_timeout"], "the host was not slow enough to show anything"
    scene.assert_runs(NEW)


@pytest.mark.soak
@pytest.mark.parametrize("times", [2, 50])
def test_back_and_forth_leaves_nothing_that_grows(
    make_scene: Callable[..., EngineScene], times: int
) -> None:
    scene = make_scene(offers=[deb(OLD), deb(NEW)])
    sizes = []
    for number in range(times):
        for version in (NEW, OLD):
            record = scene.update(version, allow_downgrade=True)
            assert record["phase"] == "committed", (number, record)
        scene.assert_runs(OLD)
        sizes.append(_inventory(scene))
    _assert_bounded(sizes)


def _assert_bounded(sizes: Sequence[Mapping[str, Any]]) -> None:
    """The last inventory has what the first one had; the history grows, and is bounded."""
    counts = [f"{len(each['files'])} files, {each['bytes']} bytes" for each in sizes]
    print(f"{len(sizes)} inventories; the first has {counts[0]}, the last {counts[-1]}")
    assert sizes[-1]["files"] == sizes[0]["files"]
    assert sizes[-1]["bytes"] < 1.1 * sizes[0]["bytes"] + 4e6, counts


def _inventory(scene: EngineScene) -> dict[str, Any]:
    """Return the files that updates may leave anywhere, and the bytes of the state directory."""
    command = (
        f"find {STATE_DIR} /run/salt-safeupdate /etc/systemd/system /run/systemd/system"
        " /opt/saltstack -maxdepth 3 -not -name '*.deb' -not -path '*/revisions/*'"
        # One of eight for each return on its way at one time: how many were is not asked here.
        " -not -path '*/site-packages/*' -not -name 'return[1-8].lock' | sort"
    )
    files = scene.container.run(["sh", "-c", command]).stdout.split()
    used = scene.container.run(["du", "-sb", STATE_DIR]).stdout.split()[0]
    kept = [name.rpartition("/")[2] for name in scene.kept()]
    return {"files": [*files, *sorted(kept)], "bytes": int(used)}
