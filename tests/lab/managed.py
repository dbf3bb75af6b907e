"""The real package manager classes at work inside a container, called from a test."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from devtools.command import REPO, Result, end
from devtools.lab.container import Container
from saltext_safeupdate.core.packages.request import File
from tests.support.waiting import LONGEST, wait_for

BINDS = {"/srv/src": str(REPO / "src")}
DIRECTORY = "/var/lib/staged"
# The core needs nothing but Python: here the system's own.
_CALL = """
import json, sys
from saltext_safeupdate.core.host.command import run
from saltext_safeupdate.core.packages.apt import Apt
from saltext_safeupdate.core.packages.dnf import Dnf
from saltext_safeupdate.core.packages.zypper import Zypper
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.packages.request import File
name, method, arguments = sys.argv[1], sys.argv[2], json.loads(sys.stdin.read())
manager = {"apt": Apt, "dnf": Dnf, "zypper": Zypper}[name](run)
if method in ("verify", "install", "needs") and isinstance(arguments[0], list):
    arguments[0] = [File(*file) for file in arguments[0]]
try:
    value = getattr(manager, method)(*arguments)
    print(json.dumps({"value": sorted(value) if isinstance(value, set) else value}))
except SafeUpdateError as err:
    print(json.dumps({"error": type(err).__name__, "message": str(err)}))
"""


class Refused(Exception):
    """A method raised a SafeUpdateError inside; ``kind`` is its class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


ENV: Mapping[str, str] = {"PYTHONPATH": "/srv/src", "PYTHONDONTWRITEBYTECODE": "1"}


class Managed:
    """``core.packages`` of this working tree, on a container's own package manager."""

    def __init__(self, container: Container, name: str) -> None:
        self.container = container
        self.name = name

    def __call__(self, method: str, *arguments: Any, timeout: float = 300) -> Any:
        result = self.container.run(
            self.argv(method), env=ENV, stdin=json.dumps(arguments), timeout=timeout
        )
        answer = json.loads(result.stdout)
        if "error" in answer:
            raise Refused(answer["error"], answer["message"])
        return answer["value"]

    def argv(self, method: str) -> list[str]:
        return ["python3", "-c", _CALL, self.name, method]

    def killed(self, files: Sequence[File], programs: str, moment: Callable[[], Any]) -> None:
        """
        Install *files*, and kill *programs* in the middle: when *moment* is true of them.

        They are stopped for each look. So they are still where it found them when they are
        killed, however late that is.
        """
        self.container.write("/var/tmp/arguments", json.dumps([files]))
        call = self.argv("install")
        words = f'exec python3 -c "$CALL" {self.name} install < /var/tmp/arguments'
        process = self.container.popen(["sh", "-c", words], env={**ENV, "CALL": call[2]})

        def caught() -> bool:
            if self._signal("STOP", programs) and moment():
                return True
            self._go_on()
            assert process.poll() is None, f"it ended before {programs} was in the middle"
            return False

        try:
            wait_for(caught, f"{programs} to be in the middle")
            assert self._signal("KILL", programs)
            self._go_on()
            said, _ = process.communicate(timeout=LONGEST)
            assert "CommandError" in said
            wait_for(lambda: not self("busy"), "the locks of the package manager")
        finally:
            process.kill()
            process.wait(10)

    def _go_on(self) -> None:
        """
        Continue whatever is stopped.

        What was found as one of the programs may have become a script of a package before the
        signal reached it.
        """
        self.run("pkill", "-CONT", ".", check=False)

    def _signal(self, name: str, programs: str) -> bool:
        """Send a signal to all that run of these programs; tell whether one does."""
        return self.run("pkill", f"-{name}", "-x", programs, check=False).ok

    def files(self, method: str, what: Any, directory: str = DIRECTORY) -> list[File]:
        """Call ``download`` or ``secure`` into a new private directory."""
        self.run("mkdir", "-p", "-m", "700", directory)
        return [File(*file) for file in self(method, what, directory)]

    def run(self, *argv: str, check: bool = True, timeout: float = 120) -> Result:
        return self.container.run(argv, check=check, timeout=timeout)

    def path(self, file: File) -> Path:
        return self.container.path(file.path)


def kill_and_fix(
    machine: Managed,
    fix: str,
    packages: Sequence[str],
    *,
    new: Sequence[File],
    old: Sequence[File],
    programs: str,
    moment: Callable[[], Any],
    unfinished: Collection[str] = (),
    blocked: tuple[str, str] | None = None,
    repository: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """
    Kill the installation of *new* in the middle, and put it right.

    *fix* is ``repair``, ``install`` (it is done again) or ``back`` (*old* is installed). The
    killed one has left *unfinished* half done. *blocked* is a file that has a script wait, and
    what to find that script by. *repository* is there for the repair only.
    """
    machine.killed(new, programs, moment)
    if blocked is not None:
        file, script = blocked
        machine.run("rm", file)
        try:
            wait_for(lambda: not machine.run("pgrep", "-f", script, check=False).ok, "the script")
        except pytest.fail.Exception:
            print(machine.run("ps", "-eo", "pid,ppid,stat,wchan:20,args").stdout)
            raise
    assert set(unfinished) <= set(machine("unfinished", packages))
    if fix == "repair":
        with repository():
            machine("repair", packages)
    else:
        machine("install", new if fix == "install" else old)


@contextmanager
def served(container: Container, folder: str) -> Iterator[None]:
    """A web server inside has *folder*; before and after there is nobody to be reached."""
    argv = [sys.executable, "-m", "http.server", "--directory", str(container.path(folder))]
    server = container.host_popen([*argv, "8000"])
    try:
        probe = "import socket; socket.create_connection(('127.0.0.1', 8000)).close()"
        wait_for(lambda: container.run(["python3", "-c", probe], check=False).ok, "the repository")
        yield
    finally:
        end(server)


def versions(files: Sequence[File]) -> dict[str, str]:
    return {file.package: file.version for file in files}
