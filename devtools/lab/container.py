"""Throw-away Debian containers with systemd as PID 1, for tests that need the real thing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from devtools import host, processes
from devtools.cache import Cache
from devtools.command import REPO, CommandFailed, Result, ToolError, run, spawn
from devtools.lab import state
from devtools.lab.artefacts import LabCache
from devtools.lab.recipes import PREFIX, Installed
from devtools.processes import Identity

GUEST_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
SITE_PACKAGES = f"{PREFIX}/lib/python3.11/site-packages"
BOOT_TIMEOUT = 400.0
POWEROFF_TIMEOUT = 180.0
END_TIMEOUT = 5.0
POWEROFF_SIGNAL = "SIGRTMIN+4"


class Stoppable(Protocol):
    """Something that runs until it is stopped."""

    def stop(self) -> None: ...


class Lab:
    """The artefacts and the run directory that containers share; a context manager."""

    def __init__(self, cache: Cache | None = None) -> None:
        host.require_root("the lab")
        host.ensure_lab_programs()
        state.clean()
        self.cache = LabCache(cache or Cache())
        self.run_dir = state.RunDir()
        self.containers: list[Container] = []
        # Things that keep running after their scene because another one may use them, by purpose.
        self.spare: dict[object, list[Stoppable]] = {}

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for container in list(self.containers):
            container.down()
        for spare in [each for kept in self.spare.values() for each in kept]:
            spare.stop()
        self.run_dir.close()

    def container(
        self,
        layer: str | Installed | None = "3007.15",
        *,
        offers: Iterable[str] = (),
        network: Network | None = None,
        extra_layers: Sequence[Path] = (),
        binds: Mapping[str, str] | None = None,
        kind: type[Container] | None = None,
    ) -> Container:
        """Prepare (not boot) a container that has Salt *layer* installed: a version, or more.

        *offers* are the packages in its apt repository, ``extra_layers`` directories on top of the
        root (the first wins), *binds* maps paths inside to host paths, read-only. It is of another
        *kind* if its root is no overlay.
        """
        made = (kind or Container)(self, layer, network, extra_layers, binds or {})
        made.offer(*offers)
        self.containers.append(made)
        return made


class Network:
    """A network namespace with loopback only; containers that share one can talk."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.name = f"sl{lab.run_dir.path.name}-{lab.run_dir.number()}"
        lab.run_dir.record(self.name, netns=self.name)
        run(["ip", "netns", "add", self.name], timeout=30)
        run(["ip", "-n", self.name, "link", "set", "lo", "up"], timeout=30)

    @property
    def path(self) -> str:
        return f"/run/netns/{self.name}"

    def popen(
        self,
        argv: Sequence[str],
        *,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = subprocess.PIPE,
        stderr: int | None = subprocess.STDOUT,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[str]:
        """Start a host program on this network's loopback; it is ended with the network."""
        inside = ["nsenter", f"--net={self.path}", "--", *argv]
        return spawn(inside, stdin=stdin, stdout=stdout, stderr=stderr, env=env, pass_fds=pass_fds)

    def close(self) -> None:
        state.remove_netns(self.name)
        self.lab.run_dir.forget(self.name)


class Container:
    """One machine: its disk (an overlay on tmpfs) outlives power cuts and reboots."""

    def __init__(
        self,
        lab: Lab,
        layer: str | Installed | None,
        network: Network | None,
        extra_layers: Sequence[Path],
        binds: Mapping[str, str],
    ) -> None:
        self.lab = lab
        self.name = f"lab{lab.run_dir.path.name}-{lab.run_dir.number()}"
        self.dir = lab.run_dir.path / self.name
        for part in ("up", "work", "root", "repo/pool"):
            (self.dir / part).mkdir(parents=True)
        self._owns_network = network is None
        self.network = network or Network(lab)
        self._binds = binds
        lowers = [*extra_layers, *([lab.cache.layer(layer)] if layer else []), lab.cache.rootfs()]
        self._lowers = [Path(p) for p in lowers]
        self._process: subprocess.Popen[str] | None = None
        self._nspawn: Identity = (0, 0)
        self._leader: Identity = (0, 0)

    # -- power ---------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self._leader[0] != 0 and processes.alive(self._leader)

    @property
    def leader(self) -> int:
        """Return the host's pid of the container's PID 1."""
        return self._leader[0]

    def up(self, *, wait: bool = True, timeout: float = BOOT_TIMEOUT) -> Container:
        """Boot; with *wait*, return when systemd has finished its start-up jobs."""
        if self.is_up:
            return self
        self._collect()
        if not self._console.exists():
            self._take_owners()
        began = time.monotonic()
        cgroup = self.name
        argv = ["unshare", "--mount", "--propagation", "private", "--"]
        argv += ["sh", str(REPO / "devtools" / "lab" / "boot.sh"), cgroup]
        argv += [":".join(map(str, self._lowers)), str(self.dir)]
        argv += [f"--machine={self.name}", f"--network-namespace-path={self.network.path}"]
        argv += [f"--kill-signal={POWEROFF_SIGNAL}"]
        argv += [f"--bind-ro={self.dir / 'repo'}:/srv/repo"]
        argv += [f"--bind-ro={self.lab.cache.pool}:/srv/repo/pool"]
        argv += [f"--bind-ro={source}:{target}" for target, source in self._binds.items()]
        with self._console.open("a") as console:
            self._process = spawn(argv, stdout=console)
        self._nspawn = processes.identity(self._process.pid)
        self._record()
        self._leader = self._find_leader(began + timeout)
        self._record()
        self._await_bus(began + timeout)
        if wait:
            self.run(["systemctl", "is-system-running", "--wait"], timeout=timeout, check=False)
        return self

    def power_cut(self, *, boot: bool = True) -> None:
        """Take the power away at once and, unless told otherwise, boot again."""
        processes.kill(self._leader)
        self._await_end(30)
        if boot:
            self.up()

    def reboot(self, *, timeout: float = POWEROFF_TIMEOUT) -> None:
        """Reboot in an orderly way."""
        self.run(["systemctl", "reboot"], timeout=30, check=False)
        self.come_back(timeout=timeout)

    def come_back(self, *, timeout: float = POWEROFF_TIMEOUT) -> None:
        """Boot again after it has gone down for a reboot that was requested inside."""
        self._await_end(timeout)
        self.up()

    def poweroff(self, *, timeout: float = POWEROFF_TIMEOUT) -> None:
        """Shut down in an orderly way; the disk stays for the next :meth:`up`."""
        self.run(["systemctl", "poweroff"], timeout=30, check=False)
        self._await_end(timeout)

    def down(self) -> None:
        """Remove the container with its disk and network; safe to call twice."""
        processes.kill(self._leader)
        # Then it ends by itself. If it were killed, we would not get the resources used inside.
        processes.wait_gone(self._nspawn, END_TIMEOUT)
        state.end_processes([who for who in (self._leader, self._nspawn) if who[0]])
        self._collect()
        if self._owns_network:
            self.network.close()
        state.remove_cgroup(self.name)
        self.lab.run_dir.forget(self.name)
        run(["rm", "-rf", str(self.dir)], timeout=60, check=False, cleans=True)
        if self in self.lab.containers:
            self.lab.containers.remove(self)

    # -- programs ------------------------------------------------------------------------

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 400,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
    ) -> Result:
        """Run *argv* inside, as root, in none of the container's services."""
        return run(self._inside(argv, env), timeout=timeout, check=check, stdin=stdin)

    def popen(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start *argv* inside; output (both streams) is in its ``stdout``."""
        return spawn(self._inside(argv, env))

    def host_popen(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a host program in the container's network."""
        return self.network.popen(argv, env=env)

    def _inside(self, argv: Sequence[str], env: Mapping[str, str] | None) -> list[str]:
        if not self.is_up:
            raise ToolError(f"container {self.name} is not up; console: {self._console}")
        settings = [f"{key}={value}" for key, value in (GUEST_ENV | dict(env or {})).items()]
        return ["nsenter", "-t", str(self.leader), "-a", "--", "env", "-i", *settings, *argv]

    # -- files ---------------------------------------------------------------------------

    def path(self, path: str) -> Path:
        """Return the host's path of a file inside; do not follow absolute symlinks with it."""
        relative = path.lstrip("/")
        if self.is_up:
            return Path(f"/proc/{self.leader}/root") / relative
        for folder in (self.dir / "up", *self._lowers):
            if (folder / relative).exists():
                return folder / relative
        return self.dir / "up" / relative

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file inside, with its directories; works also before the first boot."""
        relative = path.lstrip("/")
        target = self.path(path) if self.is_up else self.dir / "up" / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def read(self, path: str, default: str | None = None) -> str:
        """Return a file's text, or *default* if it is missing."""
        try:
            return self.path(path).read_text(errors="replace")
        except FileNotFoundError:
            if default is None:
                raise
            return default

    def exists(self, path: str) -> bool:
        return self.path(path).exists()

    def small_disk(self, path: str, size: str) -> None:
        """Mount an empty tmpfs of *size* (like ``2m``) at *path*, until the next boot."""
        self.run(["mkdir", "-p", path])
        self.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "small", path])

    # -- packages and services -----------------------------------------------------------

    def offer(self, *names: str) -> None:
        """
        Make exactly these packages (``salt-minion_3008.3``) the content of the repository.

        A package of Salt brings all others of its version.
        """
        text = "".join(dict.fromkeys(self.lab.cache.stanzas(name) for name in names))
        digest = hashlib.sha256(text.encode()).hexdigest()
        release = f"Suite: lab\nSHA256:\n {digest} {len(text.encode())} Packages\n"
        for name, content in (("Packages", text), ("Release", release)):
            fresh = self.dir / "repo" / f".{name}"
            fresh.write_text(content)
            fresh.replace(self.dir / "repo" / name)

    def packages(self, *names: str) -> dict[str, tuple[str, str]]:
        """Return ``{package: (version, status)}``, status like ``install ok installed``."""
        form = "-f=${Package}\\t${Version}\\t${Status}\\n"
        listed = self.run(["dpkg-query", "-W", form, *(names or ("salt-*",))], check=False)
        rows = (line.split("\t") for line in listed.stdout.splitlines())
        return {name: (version, status) for name, version, status in rows}

    def service(self, unit: str = "salt-minion.service") -> dict[str, str]:
        """Return the unit's state according to systemd, with ``UnitFileState``."""
        wanted = "ActiveState,SubState,MainPID,NRestarts,UnitFileState,Result,InvocationID"
        shown = self.run(["systemctl", "show", unit, "-p", wanted], timeout=30, check=False)
        return dict(line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)

    def logs(self) -> str:
        """Return console, journal and minion log, for the message of a failed test."""
        parts = [("console", self._console.read_text(errors="replace"))]
        if self.is_up:
            journal = self.run(["journalctl", "--no-pager", "-n", "400"], timeout=30, check=False)
            parts.append(("journal", journal.stdout))
        parts.append(("minion log", self.read("/var/log/salt/minion", "")))
        return "\n".join(f"==== {self.name} {title} ====\n{text}" for title, text in parts)

    # -- inner workings ------------------------------------------------------------------

    def _take_owners(self) -> None:
        """Have the directories of what the test has added belong to those who own them below."""
        layers = [self.dir / "up", *self._lowers]
        added = [each for each in layers if self.lab.run_dir.path in each.parents]
        below = [each for each in layers if each not in added]
        for top in added:
            for folder, names, _ in os.walk(top):
                for name in list(names):
                    place = (Path(folder) / name).relative_to(top)
                    found = next((each / place for each in below if _is_dir(each / place)), None)
                    if found is None:
                        names.remove(name)
                        continue
                    status = found.stat()
                    os.chown(top / place, status.st_uid, status.st_gid)
                    (top / place).chmod(stat.S_IMODE(status.st_mode))

    @property
    def _console(self) -> Path:
        return self.dir / "console"

    def _record(self) -> None:
        pids = [who for who in (self._leader, self._nspawn) if who[0]]
        self.lab.run_dir.record(self.name, pids=pids, cgroup=self.name)

    def _find_leader(self, deadline: float) -> Identity:
        while time.monotonic() < deadline:
            child = processes.first_child(self._nspawn[0])
            if child and processes.name(child) == "systemd":
                return processes.identity(child)
            if not processes.alive(self._nspawn):
                break
            time.sleep(0.01)
        text = self._console.read_text(errors="replace")
        state.end_processes([self._nspawn])
        raise ToolError(f"container {self.name} did not boot; its console said:\n{text}")

    def _await_bus(self, deadline: float) -> None:
        bus = Path(f"/proc/{self.leader}/root/run/dbus/system_bus_socket")
        while not bus.exists():
            if time.monotonic() > deadline or not self.is_up:
                raise ToolError(f"container {self.name} hangs in its boot\n{self.logs()}")
            time.sleep(0.01)

    def _await_end(self, timeout: float) -> None:
        if not processes.wait_gone(self._nspawn, timeout):
            text = f"container {self.name} did not stop within {timeout:g} s, killed"
            state.end_processes([self._leader, self._nspawn])
            raise ToolError(f"{text}; console: {self._console.read_text(errors='replace')[-2000:]}")
        processes.wait_gone(self._leader, 10)
        self._collect()

    def _collect(self) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process = None
        self._leader = self._nspawn = (0, 0)


__all__ = ["SITE_PACKAGES", "CommandFailed", "Container", "Lab", "Network"]


def _is_dir(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
