"""Redis for the tests of the cache: the server and its client, in a directory of the cache."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from devtools import host, venvs
from devtools.cache import Cache, recipe
from devtools.command import run

# Of Debian and those made from it. The package redis-server only has the service, and a link.
DEBS = ("redis-tools", "liblzf1", "libjemalloc2")
CLIENT = "redis"


def installed(cache: Cache) -> Path:
    """Return a directory with ``site``, for Python's path, and what :func:`command` starts."""
    key = [venvs.ABI, platform.machine(), recipe(_build, DEBS, CLIENT)]
    return cache.get("redis", "redis", key, _build)


def _build(out: Path, log: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--target", str(out / "site"), CLIENT]
    run(pip, timeout=venvs.PIP_TIMEOUT, log=log, env=venvs.pip_env())
    debs = out / "debs"
    debs.mkdir()
    host.download([*DEBS], debs, "the tests of the cache in Redis")
    for deb in debs.glob("*.deb"):
        run(["dpkg-deb", "-x", str(deb), str(out / "root")], timeout=300, log=log)
    # One program: what it is depends on how it is called.
    (out / "root" / "usr" / "bin" / "redis-server").symlink_to("redis-check-rdb")


def command(place: Path, socket: Path) -> tuple[list[str], dict[str, str]]:
    """Return how a server that only this *socket* reaches is started, and its environment."""
    libraries = ":".join(str(path.parent) for path in (place / "root").rglob("lib*.so.*"))
    program = place / "root" / "usr" / "bin" / "redis-server"
    argv = [str(program), "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"]
    argv += ["--save", "", "--appendonly", "no", "--dir", str(socket.parent)]
    return argv, {"LD_LIBRARY_PATH": libraries}
