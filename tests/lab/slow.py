"""A host that has little time for what runs on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from devtools.lab.container import Container

_PERIOD = 100_000


@contextmanager
def slow_host(container: Container, share: float) -> Iterator[None]:
    """Give the whole container this share of one processor, as long as the context lasts."""
    quota = round(share * _PERIOD)
    own = _mount("cgroup2") / container.name
    if (own / "cpu.max").exists():
        (own / "cpu.max").write_text(f"{quota} {_PERIOD}")
        try:
            yield
        finally:
            (own / "cpu.max").write_text("max")
        return
    top = _mount("cgroup", "cpu")
    group = top / container.name
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
        _move(own, group)
        yield
    finally:
        _move(group, top)
        group.rmdir()


def _move(source: Path, target: Path) -> None:
    """Have every process of *source*, and its later children, in *target*."""
    left: set[int] = set()
    while found := _pids(source) - left:
        left |= found
        for pid in found:
            with suppress(ProcessLookupError):
                (target / "cgroup.procs").write_text(str(pid))


def _pids(top: Path) -> set[int]:
    folders = [Path(folder) for folder, _, _ in os.walk(top)]
    texts = [(folder / "cgroup.procs").read_text() for folder in folders if folder.exists()]
    return {int(word) for text in texts for word in text.split()}


def _mount(kind: str, option: str = "") -> Path:
    """Return where a hierarchy of control groups is mounted."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, fstype, options, *_ = line.split()
        if fstype == kind and option in ("", *options.split(",")):
            return Path(where)
    raise AssertionError(f"no {kind} {option} is mounted here")
