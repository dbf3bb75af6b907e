"""Slots that are broken in every way: what ran before serves on, and the error says why."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.command import run
from devtools.lab.container import Lab
from tests.lab.engine import NEW, OLD, QUICK
from tests.lab.handover import FLAG, UNTIL_FLAG
from tests.lab.jobs import WORK
from tests.lab.scene import TELLS
from tests.lab.slotted import FRESH, SOURCE, Beside, Slotted, change
from tests.lab.test_handover_update import Pings

SLOTS = "/opt/salt-slots"
KEYRING = "/etc/salt/builds.gpg"
# Of a program for another machine: where its header has what that is, and AArch64.
_MACHINE, _OTHER = 18, b"\xb7\x00"
_START = b'#!/bin/sh\n"exec" "$(dirname "$(readlink -f "$0")")/bin/python3" "$0" "$@"\n'


class Keys:
    """Whoever signs builds: one whose key minions have, and a stranger."""

    def __init__(self, place: Path) -> None:
        self._home = place
        place.mkdir(mode=0o700)
        for name in ("us", "stranger"):
            # Without a passphrase nobody is asked for one.
            self._gpg("--passphrase", "", "--quick-gen-key", name, "default", "sign", "never")
        self._gpg("--export", "--output", str(place / "ring"), "us")

    @property
    def ring(self) -> bytes:
        return (self._home / "ring").read_bytes()

    def sign(self, path: Path, by: str = "us") -> None:
        signed = Path(f"{path}.asc")
        signed.unlink(missing_ok=True)
        self._gpg(
            "--armor", "--local-user", by, "--output", str(signed), "--detach-sign", str(path)
        )

    def close(self) -> None:
        run(["gpgconf", "--homedir", str(self._home), "--kill", "all"], timeout=60, check=False)

    def _gpg(self, *words: str) -> None:
        argv = ["gpg", "--homedir", str(self._home), "--batch", "--pinentry-mode", "loopback"]
        run([*argv, *words], timeout=120)


class Builds:
    """The build of a scene, and what is wrong with it."""

    def __init__(self, scene: Slotted, keys: Keys, whole: Path) -> None:
        self._scene, self._keys, self._whole = scene, keys, whole
        self.place = scene.master.files / "builds"

    @property
    def manifest(self) -> Path:
        return next(self.place.glob("*.json"))

    def have(self, change: Callable[[Builds], None]) -> None:
        """Have the build with something wrong."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self._whole, self.place, copy_function=os.link)
        change(self)

    def say(self, **said: Any) -> None:
        """Have the manifest say something else, and sign that."""
        path = self.manifest
        told = {**json.loads(path.read_bytes()), **said}
        path.unlink()
        path.write_text(json.dumps(told))
        self._keys.sign(path)

    def replace(self, path: Path, content: bytes) -> None:
        # It is the same file as in the build that is whole.
        path.unlink()
        path.write_bytes(content)

    @property
    def salt(self) -> Path:
        return next(self.place.glob("salt-*.whl"))

    def sign(self, by: str) -> None:
        self._keys.sign(self.manifest, by)


def _truncated(it: Builds) -> None:
    content = it.salt.read_bytes()
    it.replace(it.salt, content[: len(content) // 2])


def _changed_on_the_way(it: Builds) -> None:
    content = it.salt.read_bytes()
    it.replace(it.salt, content[:-9] + b"x" + content[-8:])


def _gone(it: Builds) -> None:
    it.salt.unlink()


def _unsigned(it: Builds) -> None:
    Path(f"{it.manifest}.asc").unlink()


def _signed_before_it_was_changed(it: Builds) -> None:
    signature = Path(f"{it.manifest}.asc").read_bytes()
    it.say(extension="0.0.9")
    it.replace(Path(f"{it.manifest}.asc"), signature)


def _another_machine_inside(it: Builds) -> None:
    """A onedir whose manifest says that it is for this machine."""
    described = json.loads(it.manifest.read_bytes())
    with open("/bin/true", "rb") as file:
        program = bytearray(file.read())
    program[_MACHINE : _MACHINE + 2] = _OTHER
    path = it.place / "salt.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in (
            ("salt/bin/python3", bytes(program)),
            ("salt/salt-minion", _START),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    files = {path.name: {"sha256": digest, "size": path.stat().st_size}}
    unpacked = described["unpacked"]
    it.say(kind="onedir", python="", files=files, unpacked=unpacked)


# What is wrong, and what the error says.
REFUSED: dict[str, tuple[Callable[[Builds], None], str]] = {
    "truncated": (_truncated, "is not the file that the manifest"),
    "changed on its way": (_changed_on_the_way, "is not the file that the manifest"),
    "a file is gone": (_gone, "The source does not have"),
    "for another machine": (lambda it: it.say(machine="aarch64"), "It is for aarch64"),
    "of another machine inside": (_another_machine_inside, "does not work here"),
    "for another Python": (lambda it: it.say(python="3.9"), "needs Python 3.9"),
    "for a later extension": (lambda it: it.say(extension="99.1"), "It needs version 99.1"),
    "no signature": (_unsigned, "has no signature"),
    "a signature of something else": (_signed_before_it_was_changed, "is not valid"),
    "a signature of a stranger": (lambda it: it.sign("stranger"), "is not valid"),
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    # The socket of its agent has a path that may not be long.
    made = Keys(Path(str(tmp_path_factory.mktemp("k"))) / "gpg")
    yield made
    made.close()


@pytest.fixture(scope="module")
def signed(lab: Lab, site: Path, keys: Keys) -> Iterator[tuple[Slotted, Builds]]:
    """A minion from a package that takes signed builds only, and such a build."""
    config = {"safeupdate": {**QUICK["safeupdate"], "slots_keyring": KEYRING}}
    scene = Slotted(lab, site, OLD, config=config, master_config={**TELLS, **FRESH})
    try:
        scene.up()
        scene.container.path(KEYRING).write_bytes(keys.ring)
        # On the file system of the sources, and in none of them.
        whole = scene.master.dir / "whole"
        scene.build(NEW).rename(whole)
        keys.sign(next(whole.glob("*.json")))
        yield scene, Builds(scene, keys, whole)
    finally:
        scene.down()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_changes_nothing(
    signed: tuple[Slotted, Builds], kind: str, request: pytest.FixtureRequest
) -> None:
    scene, builds = signed
    wrong, said = REFUSED[kind]
    builds.have(wrong)
    pid, known = scene.pid(), scene.call("safeupdate.history")
    job = scene.publish("test.sleep", 2)
    try:
        answer = scene.call("safeupdate.update", NEW, source=SOURCE, timeout=300)
        print(f"{kind}: {answer}")
        assert isinstance(answer, str)
        assert said in answer
        assert "Nothing was changed" in answer
        assert scene.returned(job)["return"] is True
        assert (scene.pid(), scene.call("safeupdate.history")) == (pid, known)
        assert scene.answers() == OLD
        assert not scene.follows()
        left = scene.container.run(["ls", "-A", f"{SLOTS}/slots"], check=False).stdout
        assert left.split() == []
    finally:
        scene.tell_of(request.node)


@pytest.mark.timeout(600)
def test_what_is_signed_is_taken(signed: tuple[Slotted, Builds]) -> None:
    scene, builds = signed
    builds.have(lambda it: None)
    (offer,) = scene.call("safeupdate.avail", source=SOURCE)["versions"]["3008"]
    assert not offer["problem"]
    staged = scene.call("safeupdate.stage", NEW, source=SOURCE, timeout=300)
    assert staged["targets"]["salt"].startswith(f"{NEW}-")
    slot = staged["files"][0]["path"]
    scene.call("safeupdate.forget_slot", os.path.basename(slot))
    assert not scene.container.exists(slot)


# -- what only its start tells, and what was changed on the disk ---------------------------------


def _without_a_library(place: Path) -> None:
    next(place.glob("pyyaml-*.whl")).unlink()


def _with_a_library_of_another_machine(place: Path) -> None:
    wheel = next(place.glob("cryptography-*.whl"))
    change(wheel, _library(wheel), lambda it: it[:_MACHINE] + _OTHER + it[_MACHINE + 2 :])


def _for_a_later_python(place: Path) -> None:
    later = b"\ntype Later = int\n"
    change(next(place.glob("salt-*.whl")), "salt/scripts.py", lambda it: it + later)


def _library(wheel: Path) -> str:
    """Return the name of the compiled part of a wheel."""
    with zipfile.ZipFile(wheel) as found:
        names = [name for name in found.namelist() if name.endswith(".so")]
    return names[0]


# What is wrong, and what the record says of it.
ROLLED_BACK: dict[str, tuple[Callable[[Path], None], str]] = {
    "misses a library": (_without_a_library, "has failed"),
    # It is there, and connects to nobody, until its watch ends.
    "has a library of another machine": (_with_a_library_of_another_machine, "reported within"),
    "is for a later Python": (_for_a_later_python, "has failed"),
}


@pytest.fixture(scope="module")
def in_slot(lab: Lab, site: Path) -> Iterator[Beside]:
    """A minion that runs from a slot, and is handed over."""
    scene = Beside(lab, site, OLD, watch_timeout=180, master_config=FRESH)
    try:
        scene.up()
        scene.have_own_tree()
        scene.build(OLD, place="old")
        asked = scene.call("safeupdate.update", OLD, source="salt://old", timeout=300)
        assert scene.ended(asked["update"], 600)["phase"] == "committed"
        scene.runs()
        yield scene
    finally:
        scene.down()


@pytest.fixture
def long_job(in_slot: Beside, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the JID of a job that runs until the flag is there."""
    scene = in_slot
    scene.master.wait(lambda: scene.open_jobs() == [], 60, "the jobs of the test before")
    scene.master.wait(lambda: scene.left() == [], 90, "the generations of the test before")
    scene.container.run(["rm", "-f", WORK, FLAG])
    command = f"echo start >> {WORK}; {UNTIL_FLAG}; echo end >> {WORK}; echo done"
    jid = scene.publish("cmd.run", command)
    scene.wait_trace("start")
    yield jid
    scene.tell_of(request.node)
    scene.container.write(FLAG, "")


def ends_well(scene: Beside, jid: str) -> None:
    """The long job runs on, and ends as if nothing had been; the slot of before serves."""
    assert scene.traces() == ["start"]
    scene.container.write(FLAG, "")
    assert scene.returned(jid)["return"] == "done"
    assert scene.traces() == ["start", "end"]
    assert scene.runs() == OLD
    assert scene.follows()


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ROLLED_BACK)
def test_what_does_not_start_is_rolled_back(in_slot: Beside, long_job: str, kind: str) -> None:
    scene = in_slot
    wrong, said = ROLLED_BACK[kind]
    scene.build(NEW, change=wrong)
    with Pings(scene) as pings:
        asked = scene.call("safeupdate.update", NEW, source=SOURCE, timeout=300)
        record = scene.ended(asked["update"], 900)
    print(f"{kind}: {record['reason']}")
    assert record["phase"] == "rolled_back", record
    assert said in record["reason"]
    assert pings.unanswered(kind) == []
    ends_well(scene, long_job)
    skipped = scene.call("safeupdate.revisions")["skipped"]
    assert [row["version"].partition("-")[0] for row in skipped][-1:] == [NEW]


def edit(scene: Slotted, slot: str) -> None:
    """Change a file of a slot on the disk."""
    path = f"{slot}/tree/lib/salt/version.py"
    scene.container.run(["sh", "-c", f"echo '# changed' >> {path}"])


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_what_was_changed_after_it_was_staged_is_not_activated(
    in_slot: Beside, long_job: str
) -> None:
    scene = in_slot
    scene.build(NEW)
    staged = scene.call("safeupdate.stage", NEW, source=SOURCE, timeout=300)
    edit(scene, staged["files"][0]["path"])
    with Pings(scene) as pings:
        asked = scene.call("safeupdate.update", NEW, source=SOURCE, timeout=300)
        print(f"changed after it was staged: {asked}")
        told = asked
        if isinstance(asked, dict):
            record = scene.ended(asked["update"], 600)
            assert record["phase"] == "failed", record
            told = record["reason"]
    assert "has changed since it was made" in told
    assert pings.unanswered("changed after it was staged") == []
    ends_well(scene, long_job)
    # It is made anew.
    again = scene.call("safeupdate.stage", NEW, source=SOURCE, timeout=300)
    assert again["targets"] == staged["targets"]
    scene.call("safeupdate.forget_slot", os.path.basename(staged["files"][0]["path"]))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_what_was_changed_while_it_is_active_serves_on_and_can_be_left(
    in_slot: Beside, long_job: str
) -> None:
    """The last one on this host: it ends without a slot."""
    scene = in_slot
    scene.build(NEW)
    active = next(each for each in scene.call("safeupdate.revisions")["slots"] if each["active"])
    edit(scene, f"{SLOTS}/slots/{active['slot']}")
    with Pings(scene) as pings:
        asked = scene.call("safeupdate.update", NEW, source=SOURCE, timeout=300)
        print(f"changed while it is active: {asked}")
        told = asked
        if isinstance(asked, dict):
            record = scene.ended(asked["update"], 600)
            assert record["phase"] == "failed", record
            told = record["reason"]
    assert "has changed since it was made" in told
    assert pings.unanswered("changed while it is active") == []
    ends_well(scene, long_job)
    back = scene.call("safeupdate.rollback", to="without_slot", timeout=300)
    assert scene.ended(back["update"], 600)["phase"] == "committed"
    assert scene.runs() == OLD
    assert not scene.follows()
