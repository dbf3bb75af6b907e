"""A package manager that only writes a file; everything that a ``pkg`` state asks for."""

import fnmatch
import os

import salt.utils.data
import salt.utils.pkg
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.core.packages.request import Action
from tests.support.packages import KEEP, Database, Unavailable

__virtualname__ = "pkg"


def __virtual__():
    if "fake_packages" not in __opts__:
        return False, "the option fake_packages names no database"
    return __virtualname__


def _database():
    return Database(__opts__["fake_packages"])


def _targets(name, pkgs, sources, version=None):
    if sources:
        for source in sources:
            for path in source.values():
                file = os.path.basename(path).removesuffix(".deb")
                yield tuple(file.split("_", 1))
    elif pkgs:
        for entry in pkgs:
            yield from entry.items() if isinstance(entry, dict) else [(entry, None)]
    elif name:
        yield name, version


def _exact(name, version):
    """Return the version that is meant, as Salt's module for dnf finds it."""
    version = str(version or "").lstrip("=")
    offered = list_repo_pkgs(name)[name]
    if version.startswith(("<", ">")):
        return salt.utils.pkg.match_version(version, offered) or version
    if "*" in version:
        return next(iter(fnmatch.filter(offered, version)), version)
    return version or None


def _change(what, action, targets, keep=()):
    database = _database()
    before = database.installed
    try:
        targets = [(name, _exact(name, version)) for name, version in targets]
        database.apply(what, database.plan(action, targets, keep))
    except Unavailable as err:
        raise CommandExecutionError(str(err)) from err
    return salt.utils.data.compare_dicts(before, database.installed)


def refresh_db(cache_valid_time=0, **kwargs):
    _database().note("refresh_db", *([str(cache_valid_time)] if cache_valid_time else ()))
    return True


def list_pkgs(versions_as_list=False, purge_desired=False, **kwargs):
    installed = {} if purge_desired else _database().installed
    if versions_as_list:
        return {name: [version] for name, version in installed.items()}
    return installed


def version(*names, **kwargs):
    installed = _database().installed
    if len(names) == 1:
        return installed.get(names[0], "")
    return {name: installed.get(name, "") for name in names}


def latest_version(*names, **kwargs):
    database = _database()
    found = {}
    for name in names:
        newest = database.newest(name)
        found[name] = "" if database.installed.get(name) == newest else newest
    return found[names[0]] if len(names) == 1 else found


available_version = latest_version


def list_upgrades(refresh=True, **kwargs):
    plan = _database().plan(Action.UPGRADE)
    return {name: new for name, (old, new) in plan.items() if old}


def install(
    name=None, refresh=False, pkgs=None, sources=None, downloadonly=False, version=None, **kwargs
):
    targets = list(_targets(name, pkgs, sources, version))
    if salt.utils.data.is_true(refresh):
        refresh_db(kwargs.get("cache_valid_time", 0))
    if downloadonly:
        database = _database()
        plan = database.plan(Action.INSTALL, targets)
        downloaded = database.load()["downloaded"]
        for found, (_, new) in plan.items():
            downloaded.setdefault(found, {})[new] = {"path": "/nowhere"}
        database.update(downloaded=downloaded)
        database.note("download", *sorted(plan))
        return {found: {"old": "", "new": new} for found, (_, new) in plan.items()}
    now = _database().installed
    again = {each for each, _ in targets if kwargs.get("reinstall") and each in now}
    return {
        **{each: {"old": now[each], "new": now[each]} for each in again},
        **_change("install", Action.INSTALL, targets),
    }


def list_downloaded(**kwargs):
    return _database().load()["downloaded"]


def remove(name=None, pkgs=None, **kwargs):
    return _change("remove", Action.REMOVE, _targets(name, pkgs, None))


def purge(name=None, pkgs=None, **kwargs):
    return _change("purge", Action.PURGE, _targets(name, pkgs, None))


def upgrade(refresh=True, pkgs=None, dist_upgrade=False, **kwargs):
    keep = set(filter(None, os.environ.get(KEEP, "").split(",")))
    if dist_upgrade:
        # As with zypper: all or nothing.
        plans = [set(_database().plan(Action.UPGRADE, keep=each)) for each in ((), keep)]
        stuck = plans[0] - plans[1] - keep
        if stuck:
            raise CommandExecutionError(f"{', '.join(sorted(stuck))} cannot follow")
    return _change("upgrade", Action.UPGRADE, _targets(None, pkgs, None), keep)


def group_install(name, **kwargs):
    return install(pkgs=name.split("+"))


def hold(name=None, pkgs=None, **kwargs):
    database = _database()
    names = [found for found, _ in _targets(name, pkgs, None)]
    database.update(locked=sorted({*database.load()["locked"], *names}))
    database.note("hold", *names)
    return {
        found: {"name": found, "result": True, "comment": "held", "changes": {"new": "hold"}}
        for found in names
    }


def unhold(name=None, pkgs=None, **kwargs):
    database = _database()
    names = [found for found, _ in _targets(name, pkgs, None)]
    database.update(locked=sorted({*database.load()["locked"]}.difference(names)))
    database.note("unhold", *names)
    return {
        found: {"name": found, "result": True, "comment": "released", "changes": {"new": ""}}
        for found in names
    }


def list_holds(full=False, **kwargs):
    return _database().load()["locked"]


def list_repo_pkgs(*names, byrepo=False, **kwargs):
    available = _database().load()["available"]
    return {name: list(reversed(available.get(name, {}))) for name in names}
