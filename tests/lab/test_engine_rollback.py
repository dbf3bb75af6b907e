"""New minions that are broken in every way, and the old one that is there again."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import SITE_PACKAGES, Lab
from devtools.lab.recipes import FAULT_FILE, MINION_PACKAGES, PREFIX
from tests.lab.engine import OLD, QUICK, EngineScene, deb, own, skipped

FAULTY = "3008.3+faulty"
PROGRAM = f"{PREFIX}/salt-minion"
# A shell reads the first lines of a program.
FIRST = "sed -i '/^import re/i"
UNIT = "/lib/systemd/system/salt-minion.service"
SALT = f"{SITE_PACKAGES}/salt"
# What is wrong with the minion, and what its record says of that. One that dies takes its control
# group along, which was the end of the watcher too in elastic-agent #3123.
FAULTS = {
    "does not start": (f"{FIRST} raise SystemExit(1)' {PROGRAM}", "has failed"),
    "starts and dies": (
        f"{FIRST} import os, threading; threading.Timer(3, os._exit, (3,)).start()' {PROGRAM}",
        "has failed",
    ),
    "loops": (
        f"sed -i 's/^.Service.$/[Service]\\nRestart=always\\nRestartSec=0.2/' {UNIT}\n"
        f"{FIRST} import os, threading; threading.Timer(1, os._exit, (3,)).start()' {PROGRAM}",
        "in a row",
    ),
    "cannot authenticate": (
        f"cat >> {SALT}/crypt.py <<'END'\n"
        "async def _retry(self, *args, **kwargs):\n    return 'retry'\n"
        "AsyncAuth.sign_in = _retry\nEND",
        "job",
    ),
    "cannot run a job": (f"echo '(' >> {SALT}/modules/test.py", "failed with code"),
    "hangs": (f"{FIRST} import time; time.sleep(100000)' {PROGRAM}", "reported"),
    "misses a module": (f"rm {SALT}/minion.py", "has failed"),
}

# A Salt with one more parameter in a function that is replaced, made of the one that runs. It has
# neither programs nor a unit.
UNKNOWN = "3008.4"
PACK = f"""\
set -e
top=/var/tmp/unknown
mkdir -p $top/DEBIAN $top{SITE_PACKAGES}
tar --exclude=__pycache__ -C {SITE_PACKAGES} -cf - salt | tar -C $top{SITE_PACKAGES} -xf -
sed -i 's/def _invoke_execution(self, data)/{{changed}}/' \
    $top{SALT}/minion.py
grep -q '{{changed}}' $top{SALT}/minion.py
for package in {" ".join(MINION_PACKAGES)}; do
    printf 'Package: %s\n%s' "$package" '{{control}}' > $top/DEBIAN/control
    dpkg-deb --root-owner-group -Znone --build $top /var/tmp/$package.deb
    # The tree is in the first one.
    rm -rf $top/opt
done
rm -r $top
"""
SAME = "def _invoke_execution(self, data)"
CHANGED = "def _invoke_execution(self, data, token)"
CONTROL = (
    f"Version: {UNKNOWN}\nArchitecture: amd64\n"
    "Maintainer: lab <lab@example.invalid>\nDescription: made for a test\n"
)

# Two that systemd takes for well. test_rpm_host.py has one that does not start in every run, too.
SHORT = ("cannot run a job", "hangs")
# Only the end of the watch tells that these are broken.
SILENT = ("cannot authenticate", "hangs")
SILENCE = 60


@pytest.fixture(scope="module")
def scene(lab: Lab, site: Path, request: pytest.FixtureRequest) -> Iterator[EngineScene]:
    settings = {"safeupdate": {**QUICK["safeupdate"], "watch_timeout": request.param}}
    made = EngineScene(lab, site, OLD, offers=[deb(OLD), deb(FAULTY)], config=settings)
    try:
        yield made.up()
    finally:
        made.down()


@pytest.mark.parametrize(
    ("scene", "fault"),
    [
        pytest.param(
            SILENCE if fault in SILENT else QUICK["safeupdate"]["watch_timeout"],
            fault,
            marks=() if fault in SHORT else pytest.mark.soak,
        )
        for fault in FAULTS
    ],
    indirect=["scene"],
)
def test_what_does_not_prove_healthy_is_rolled_back(scene: EngineScene, fault: str) -> None:
    assert scene.version() == OLD, "the fault before this one was not rolled back"
    record = rolled_back(scene, fault, FAULTY, OLD)
    assert json.loads(record["versions_to"]) == own(FAULTY)
    assert scene.call("safeupdate.unquarantine", FAULTY) == skipped(FAULTY)


@pytest.mark.parametrize("scene", [QUICK["safeupdate"]["watch_timeout"]], indirect=True)
def test_a_salt_that_the_extension_does_not_know_is_not_installed(scene: EngineScene) -> None:
    _offer_made(scene, CHANGED)
    pid = scene.pid()
    record = scene.update(UNKNOWN)
    assert record["phase"] == "failed", record
    assert f"does not know Salt {UNKNOWN}" in record["reason"]
    assert "salt.minion.Minion._invoke_execution takes (self, data, token)" in record["reason"]
    assert "Nothing was changed" in record["reason"]
    assert scene.phases() == ["requested", "checking", "staging", "failed"]
    # It is staged now, so this is told beforehand.
    found = {each["code"]: each for each in scene.call("safeupdate.plan", UNKNOWN)["findings"]}
    assert found["extension-too-old"]["blocking"]
    assert "Install a version of saltext-safeupdate" in found["extension-too-old"]["fix"]
    assert f"does not know Salt {UNKNOWN}" in scene.call("safeupdate.update", UNKNOWN)
    assert scene.pid() == pid
    assert scene.call("safeupdate.revisions")["skipped"] == []
    scene.assert_runs(OLD)
    scene.container.offer(deb(OLD), deb(FAULTY))


@pytest.mark.soak
@pytest.mark.parametrize("scene", [QUICK["safeupdate"]["watch_timeout"]], indirect=True)
def test_a_new_version_without_its_service_is_rolled_back(scene: EngineScene) -> None:
    _offer_made(scene, SAME)
    record = scene.update(UNKNOWN)
    assert record["phase"] == "rolled_back", record
    assert scene.call("safeupdate.unquarantine", UNKNOWN) == skipped(UNKNOWN)
    scene.assert_runs(OLD)
    scene.container.offer(deb(OLD), deb(FAULTY))


def _offer_made(scene: EngineScene, changed: str) -> None:
    """Build packages on the host, and add them to what is on offer there."""
    container = scene.container
    container.run(["sh", "-c", PACK.format(changed=changed, control=CONTROL)])
    folder = container.dir / "repo"
    packages = (folder / "Packages").read_text()
    for package in MINION_PACKAGES:
        file = folder / f"{package}.deb"
        shutil.move(container.path(f"/var/tmp/{package}.deb"), file)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        where = f"Filename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n\n"
        packages += f"Package: {package}\n{CONTROL}{where}"
    (folder / "Packages").write_text(packages)
    digest = hashlib.sha256(packages.encode()).hexdigest()
    release = f"Suite: lab\nSHA256:\n {digest} {len(packages.encode())} Packages\n"
    (folder / "Release").write_text(release)


def rolled_back(scene: EngineScene, fault: str, new: str, old: str) -> dict[str, Any]:
    """
    Ask for *new*, broken in that way; assert that *old* is there again, and return the record.

    *old* is the version as the host has it.
    """
    script, reason = FAULTS[fault]
    scene.container.write(FAULT_FILE, script + "\n")
    asked = scene.ask(new)
    try:
        scene.wait_phase("rolling_back", "committed", "failed")
        began = time.monotonic()
        record = scene.ended(asked["update"])
        assert record["phase"] == "rolled_back", record
        assert reason in record["reason"], record
        scene.assert_runs(old)
    except BaseException:
        print(scene.container.logs())
        raise
    print(f"{fault}: {time.monotonic() - began:.1f} s from the decision to the end")
    status = scene.call("safeupdate.status")
    assert (status["phase"], status["reason"]) == ("rolled_back", record["reason"])
    assert "last-update" in {item["code"] for item in scene.call("safeupdate.check")}
    again = scene.call("safeupdate.update", new)
    assert "was rolled back on this minion" in again
    return record
