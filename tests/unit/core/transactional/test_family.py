import os
import signal

import pytest

from saltext_safeupdate.core.transactional.family import MARK, Family, Process


class FakeProc:
    def __init__(self, root):
        self.root = root
        (root / "self").mkdir()

    def add(self, pid, parent, environ="", state="S"):
        place = self.root / str(pid)
        place.mkdir()
        (place / "environ").write_bytes(environ.replace(" ", "\0").encode())
        fields = " ".join([state, str(parent), *["0"] * 17, f"{pid}00"])
        (place / "stat").write_text(f"{pid} (a) b (c)) {fields} 0 0\n")


@pytest.fixture
def proc(tmp_path):
    return FakeProc(tmp_path)


def test_members(proc):
    proc.add(10, 1, f"A=1 {MARK}=m B=2 TRANSACTIONAL_UPDATE=")
    proc.add(11, 10, f"{MARK}=m TRANSACTIONAL_UPDATE=true")
    proc.add(12, 11, "title of a program that wrote over its environment")
    proc.add(13, 12, "")
    proc.add(14, 1, f"{MARK}=other")
    proc.add(15, 1, f"{MARK}=m TRANSACTIONAL_UPDATE=true")  # its parent was killed
    proc.add(16, 10, f"{MARK}=m", state="Z")
    proc.add(17, 1, "")  # has neither mark nor parent; only the seed knows it
    found = Family("m", lambda: 17, proc.root).members()
    assert sorted(found, key=lambda process: process.pid) == [
        Process(10, 1, inside=False),
        Process(11, 10, inside=True),
        Process(12, 11, inside=True),
        Process(13, 12, inside=True),
        Process(15, 1, inside=True),
        Process(17, 1, inside=True),
    ]
    assert {process.pid for process in Family("m", lambda: 99, proc.root).members()} == {
        *(10, 11, 12, 13, 15),
    }


def test_send(proc):
    proc.add(10, 1, f"{MARK}=m")
    proc.add(11, 10, f"{MARK}=m TRANSACTIONAL_UPDATE=true")
    proc.add(os.getpid(), 10, f"{MARK}=m TRANSACTIONAL_UPDATE=true")
    sent = []

    def kill(pid, signum):
        sent.append((pid, signum))
        raise ProcessLookupError  # it ended meanwhile

    family = Family("m", proc=proc.root)
    family.send(signal.SIGTERM, inside_only=True, kill=kill)
    assert sent == [(11, signal.SIGTERM)]
    family.send(signal.SIGKILL, inside_only=False, kill=kill)
    assert set(sent[1:]) == {(10, signal.SIGKILL), (11, signal.SIGKILL)}
