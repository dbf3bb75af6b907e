"""A host with systemd and its control groups, and the stop guard of its minion."""

from pathlib import Path

from saltext_safeupdate.core.jobs import guard_file


def have_guard(patch, directory, way="handover", service="salt-minion"):
    """Have the guard in place, written for this *way* of restarting; *patch* is a MonkeyPatch."""
    units, groups = directory / "units", directory / "cgroup.controllers"
    patch.setattr(guard_file, "UNITS", str(units))
    patch.setattr(guard_file, "GROUPS", str(groups))
    groups.touch()
    path = Path(guard_file.path(service))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[Service]\nExecStop=-/bin/sh /guard.sh /run {service}.service 1 1 {way}\n")
    return path
