"""
A minion in this process: Salt's real loaders and state engine, our real hooks, transaction
and supervisor; only the package manager and the init system are fakes.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
from pathlib import Path

import salt.config
import salt.loader
import salt.loader.lazy
import salt.state
import salt.utils.functools
import yaml

from saltext_safeupdate import patches
from saltext_safeupdate.core import wiring
from saltext_safeupdate.core.host import init_system
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.ordering import patches as ordering
from saltext_safeupdate.ordering.recording import NO_TIME
from saltext_safeupdate.this_host import Host

from .packages import Database, FakeManager
from .services import FakeServices

MODULES = Path(__file__).parent / "minion_modules"
# Whatever provides "pkg" or "service" on the machine that runs the tests.
CORE_PROVIDERS = [
    *("aptpkg", "yumpkg", "zypperpkg", "apkpkg", "pacmanpkg", "ebuildpkg", "opkg", "xbpspkg"),
    *("debian_service", "rh_service", "systemd_service", "gentoo_service", "upstart_service"),
    *("service", "runit", "slackware_service", "dpkg_lowpkg", "rpm_lowpkg"),
]
# Salt loads every module that it has for some questions (a condition, the name of a virtual
# module), which takes longer than the runs themselves: the minion has those that runs use.
LOADED = {
    "modules": (
        *("cmdmod", "config", "cp", "data", "event", "file", "grains", "hashutil", "match"),
        *("mine", "minion", "pillar", "pkg_resource", "saltutil", "schedule", "slsutil", "state"),
        *("status", "sysmod", "test", "transactional_update", "user", "useradd"),
    ),
    "states": ("cmd", "file", "module", "pkg", "saltmod", "service", "test"),
}
OWN = ("salt-minion", "salt-common")
INSTALLED = {"salt-minion": "1", "salt-common": "1", "vim": "1", "nano": "1", "plugin": "1"}
AVAILABLE = {
    "salt-common": {"1": {}, "2": {}},
    "salt-minion": {"1": {"salt-common": "1"}, "2": {"salt-common": "2"}},
    "vim": {"1": {}, "2": {}},
    "nano": {"1": {}, "2": {}},
    "curl": {"1": {}},
    # Its newer version pulls the minion along.
    "plugin": {"1": {}, "2": {"salt-minion": "2"}},
}


@functools.cache
def _grains():
    opts = salt.config.minion_config(None)
    opts["file_client"] = "local"
    return salt.loader.grains(opts)


class Names(list):
    """A list of names that nobody changes: Salt copies all options for each of its loaders."""

    def __deepcopy__(self, memo):
        return self


@functools.cache
def not_loaded(kind, *wanted):
    """Return the modules of Salt's own that a minion of the tests does not have."""
    (package,) = importlib.import_module(f"salt.{kind}").__path__
    names = {path.stem for path in Path(package).iterdir() if path.stem != "__init__"}
    return sorted(names.difference(LOADED.get(kind, ()), wanted))


class Minion:
    """One minion with everything it writes under *path*."""

    def __init__(self, path, *, can_keep=True, **opts):
        self.path = Path(path)
        for name in ("roots", "pillar", "cache", "run"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        self.database = Database(self.path / "packages.json").create(INSTALLED, AVAILABLE)
        self.manager = FakeManager(self.database, can_keep=can_keep)
        self.services = FakeServices(self.database, str(self.path / "state"))
        self.opts = salt.config.minion_config(None)
        self.opts.update(
            id="minion",
            root_dir=str(self.path),
            cachedir=str(self.path / "cache"),
            sock_dir=str(self.path / "run"),
            pki_dir=str(self.path / "pki"),
            extension_modules=str(self.path / "cache" / "extmods"),
            conf_file=str(self.path / "minion"),
            file_client="local",
            local=True,
            file_roots={"base": [str(self.path / "roots")]},
            pillar_roots={"base": [str(self.path / "pillar")]},
            module_dirs=[str(MODULES)],
            disable_modules=Names([*CORE_PROVIDERS, *not_loaded("modules")]),
            disable_states=Names(not_loaded("states")),
            fake_packages=str(self.database.path),
            log_level="error",
            safeupdate={
                "state_dir": str(self.path / "state"),
                "run_dir": str(self.path / "locks"),
                "registry_dir": str(self.path / "registry"),
                "packages": list(OWN),
                "jobs_timeout": 5,
                "return_timeout": 5,
                "restart_timeout": 5,
                "stable_interval": 0.1,
                "restart_jitter": 0.01,
            },
            module_executors=["safeupdate", "direct_call"],
            grains=copy.deepcopy(_grains()),
        )
        self.opts.update(opts)
        self.host = Host(self.opts)

    @property
    def functions(self):
        """Fresh loaders, as every job has them."""
        context = {}
        utils = salt.loader.utils(self.opts, context=context)
        functions = salt.loader.minion_mods(self.opts, context=context, utils=utils)
        self.context = context
        return functions

    def sls(self, name, content):
        """Write an SLS file from a mapping or from text."""
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
        (self.path / "roots" / f"{name}.sls").write_text(text)

    def call(self, fun, *args, **kwargs):
        """Call an execution function as a job: with an end, at which the supervisor acts."""
        try:
            return self.functions[fun](*args, **kwargs)
        finally:
            self.end_job()

    def apply(self, content, **kwargs):
        """Apply one SLS; return its results by ID."""
        self.sls("it", content)
        return by_id(self.call("state.apply", "it", **kwargs))

    def end_job(self):
        current.end()
        self.services.join()

    @property
    def store(self):
        return Store(self.host.settings.database)

    def record(self):
        """Return the newest record, or None."""
        return self.store.latest() if self.store.exists() else None

    def journal(self, *kinds):
        """Return what happened, in order; all but the inhibitor where no kinds are named."""
        return [
            entry
            for entry in self.database.journal()
            if (entry[0] in kinds if kinds else entry[0] not in ("inhibit", "release"))
        ]


def by_id(results):
    """Return the results by state ID; of several with one ID a list."""
    assert isinstance(results, dict), results
    found = {}
    for tag, result in results.items():
        key = tag.split("_|-")[1]
        if key in found:
            found[key] = [*(found[key] if isinstance(found[key], list) else [found[key]]), result]
        else:
            found[key] = result
    return found


@contextlib.contextmanager
def hooked(minion, *, no_time=NO_TIME):
    """Put the hooks into this process, and take them out again."""
    places = (salt.state.State, salt.loader.lazy.LazyLoader, salt.utils.functools)
    before = [(place, dict(vars(place))) for place in places]
    keywords = salt.state.STATE_INTERNAL_KEYWORDS
    seams = wiring.package_manager, init_system.detect
    wiring.package_manager = lambda: minion.manager
    init_system.detect = lambda: minion.services
    # No tree is replaced, so none has to be kept.
    minion.host.roots = tuple
    patches.apply(ordering.patches(ordering.Later(minion.host, minion.host.settings, no_time)))
    try:
        yield minion
    finally:
        minion.end_job()
        wiring.package_manager, init_system.detect = seams
        salt.state.STATE_INTERNAL_KEYWORDS = keywords
        for place, names in before:
            for name, value in vars(place).copy().items():
                if names.get(name) is not value:
                    setattr(place, name, names[name])
