"""
Answers about this host, from the opts of Salt: its settings, its record, its tree.

Modules that not every minion needs are imported only when they are needed, because all others stay
in the memory of every minion. :mod:`.factory` builds the objects that act on the answers.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import salt
import salt.config
import salt.syspaths
import salt.utils.minion
from salt.exceptions import SaltException

from .core.errors import SafeUpdateError
from .core.host import hidden, minions, own_unit, processes
from .core.host.minions import Minion
from .core.record import owner
from .core.record.store import Store
from .core.settings import Settings, is_proxy, of_minion

if TYPE_CHECKING:
    from .core.generations.activation import Activation
    from .core.host.daemons import Daemon
    from .core.host.servers import Server
    from .core.host.service import ServiceManager
    from .core.jobs.ledger import Ledger
    from .core.jobs.stop_guard import StopGuard
    from .core.packages.manager import PackageManager
    from .core.packages.own import Own, OwnFinder


def is_salt_call(opts: Mapping[str, Any]) -> bool:
    """Return whether a ``salt-call`` has these options, and not a minion."""
    return str(opts.get("__cli", "")).endswith("salt-call")


def enabled(opts: Mapping[str, Any]) -> bool:
    """
    Tell whether this process should use the extension.

    Not inside a transaction of transactional-update, because that does not change the running
    system. Not in a proxy minion: it has no packages, and its jobs do not pass our hooks.
    """
    if opts.get("__role", "minion") != "minion" or hidden.in_transaction(os.environ):
        return False
    if is_proxy(opts):
        return False
    engines = opts.get("engines") or []
    if isinstance(engines, dict):
        engines = [engines]
    named = {name for entry in engines for name in (entry if isinstance(entry, dict) else [entry])}
    return "safeupdate" in named or "safeupdate" in (opts.get("module_executors") or [])


def settings_of(opts: Mapping[str, Any]) -> Settings:
    """Return the settings of the minion with these opts, and the unit that it runs in."""
    settings = of_minion(opts, service=own_unit.name() or Settings.service)[0]
    if own_unit.name():
        return settings
    # Such as salt-call, which does not run in the unit of the minion.
    noted = minions.find(settings.registry_dir, owner.config_file(opts))
    return settings if noted is None else of_minion(opts, service=noted.unit)[0]


class Host:
    """
    Answers about this host and its minion; one for each process and opts.

    Raises InputError inside a transaction: what it tells is of the running minion.
    """

    def __init__(self, opts: Mapping[str, Any]) -> None:
        hidden.refuse()
        self.opts = opts

    @cached_property
    def settings(self) -> Settings:
        return settings_of(self.opts)

    def noted(self, process: str) -> Minion:
        """Return what other minions of this host have to know; *process* is the main process."""
        settings = self.settings
        return Minion(
            config=owner.config_file(self.opts),
            id=str(self.opts.get("id", "")),
            unit=settings.service,
            state_dir=settings.state_dir,
            run_dir=settings.run_dir,
            process=process,
            roots=_tree(),
            backup=tuple(self.backup_paths()),
        )

    @cached_property
    def store(self) -> Store:
        return Store(self.settings.database)

    def claim(self) -> str:
        """Note that the database is this minion's; return why it is not. Raises RecordError."""
        reason = self._others() or self._sharing() or owner.claim(self.store, self.opts)
        if not reason:
            from .core.jobs import copied

            pki = str(self.opts.get("pki_dir") or "")
            copied.look(self.store, self.ledger, pki and os.path.join(pki, "minion.pub"))
        return reason

    def why_not_ours(self) -> str:
        """Return why the database is not this minion's; empty if it is. Raises RecordError."""
        return self._others() or self._sharing() or owner.why_not_ours(self.store, self.opts)

    def _others(self) -> str:
        """Return why a minion that runs as root cannot use its directory; empty if it can."""
        place = self.settings.state_dir
        if os.geteuid() or self.opts.get("user", "root") != "root" or not os.path.isdir(place):
            return ""
        uid = os.stat(place).st_uid
        if uid == 0:
            return ""
        return (
            f"{place} belongs to the user with the UID {uid}, who could have this minion run what "
            "no master has published. Jobs run here as with plain Salt: none is held, recorded or "
            "waited for. Give the directory and what is in it to root."
        )

    def _sharing(self) -> str:
        """Return why the locks are not this minion's; empty if they are."""
        settings, config = self.settings, owner.config_file(self.opts)
        for each in minions.registered(settings.registry_dir):
            if each.config != config and each.run_dir == settings.run_dir and each.runs:
                return owner.refusal(f"The directory of locks {settings.run_dir}", each, config)
        return ""

    def kept_for_another(self) -> str:
        """Return why the keeper of the service is another minion's; empty if that is not so."""
        from .core.host.direct import Direct

        services, unit = self.services, self.settings.service
        kept = services.kept(unit) if isinstance(services, Direct) else None
        default = os.environ.get("SALT_CONFIG_DIR", str(salt.syspaths.CONFIG_DIR))
        theirs = "" if kept is None else kept.config_dir or default
        ours = os.path.dirname(str(self.opts.get("conf_file") or "/etc/salt/minion"))
        if not os.path.isabs(theirs) or os.path.realpath(theirs) == os.path.realpath(ours):
            return ""
        return (
            f"The keeper of {unit} has started the minion whose configuration is in {theirs}, and "
            f"not this one, of {ours}. Give this one a keeper and a name of its own ('--unit', and "
            "'safeupdate:service')."
        )

    @cached_property
    def ledger(self) -> Ledger:
        from .core.jobs.ledger import Ledger

        return Ledger(self.settings.database)

    @cached_property
    def manager(self) -> PackageManager | None:
        from .core import wiring

        return wiring.package_manager()

    def known_manager(self) -> PackageManager:
        """Return the package manager. Raise SafeUpdateError if none that is known is there."""
        if self.manager is None:
            raise SafeUpdateError(
                "No package manager that is known was found, so Salt was not installed from "
                "packages. Nothing was changed."
            )
        return self.manager

    @property
    def activation(self) -> Activation:
        """How what the package manager installs comes to run."""
        from .core.generations import activation

        return activation.of(self.manager, self.manager)

    @cached_property
    def services(self) -> ServiceManager:
        from .core.host import init_system

        return init_system.detect()

    @cached_property
    def stop_guard(self) -> StopGuard | None:
        """The stop guard; None if there is no systemd."""
        from .core.jobs.stop_guard import StopGuard

        return StopGuard(self.settings) if self.services.name == "systemd" else None

    @cached_property
    def _finder(self) -> OwnFinder:
        from .core.packages.own import OwnFinder

        assert self.manager is not None  # noqa: S101
        return OwnFinder(self.manager, self._paths(), self.settings.packages)

    def own(self) -> Own:
        """Return the own packages; none if no package manager is known."""
        from .core.packages.own import Own

        return Own(frozenset(), False) if self.manager is None else self._finder()

    def _paths(self) -> tuple[str, ...]:
        """Salt's code, its unit, and its interpreter unless that is the system's."""
        found = {os.path.join(os.path.dirname(salt.__file__), "version.py")}
        if _has_own_python():
            found |= {os.path.realpath(sys.executable), sys.executable}
        unit = self.services.unit_file(self.settings.service)
        if unit:
            found.add(unit)
        return tuple(sorted(found))

    def backup_paths(self) -> list[str]:
        """Return what is put back on a rollback."""
        from .core.host import backup_paths

        opts = self.opts
        found = backup_paths.of_minion(
            config_file=opts.get("conf_file") or "/etc/salt/minion",
            pki_dir=opts.get("pki_dir") or "/etc/salt/pki/minion",
            cache_dir=opts.get("cachedir") or "/var/cache/salt/minion",
        )
        return [*found, *self.settings.backup]

    def roots(self) -> tuple[str, ...]:
        """Return the directories of Python code that an update replaces below the minion."""
        return () if self.activation.by_boot else _tree()

    def own_roots(self) -> tuple[str, ...]:
        """Return the directories of Python code that may change below this minion by whomever."""
        # Without that program, no package manager is to be asked: that takes memory.
        return self.roots() if shutil.which("transactional-update") else _tree()

    def others(self) -> tuple[Minion, ...]:
        """Return the other minions of this host that run from what an update replaces."""
        from .core.supervisor import neighbours

        return neighbours.of(self.settings, self.roots())

    def daemons(self) -> list[Daemon]:
        """Return the services of Salt that run from what an update replaces."""
        from .core.host import daemons

        roots = self.roots()
        ours = "" if _has_own_python() else os.path.realpath(sys.executable)
        return daemons.running_from(self.services, roots, ours) if roots else []

    def masters(self) -> tuple[tuple[Server, ...], tuple[str, ...]]:
        """
        Return the daemons of a master that run from what an update replaces, and what is put back
        of that master on a rollback. Raises SafeUpdateError.
        """
        from .core.host import backup_paths, servers

        found: list[Server] = []
        paths: dict[str, None] = {}
        for each in self.daemons():
            if each.program in servers.PROGRAMS:
                if not self.services.can_start(each.unit):
                    raise SafeUpdateError(servers.cannot_start(each.unit))
                opts = _master_opts(each.config or salt.syspaths.CONFIG_DIR)
                found.append(_server(each, opts))
                include = os.path.dirname(str(opts["default_include"]))
                files = {"config_file": str(opts["conf_file"]), "pki_dir": str(opts["pki_dir"])}
                paths |= dict.fromkeys(backup_paths.of_master(**files, include=include))
        return servers.in_order(found), tuple(paths)

    def known(self) -> set[int]:
        """Return the main processes of the minions that an update waits for, our own included."""
        units = [self.settings.service, *(each.unit for each in self.others() if each.runs)]
        # A unit may have other names.
        found = {self.services.state(unit).pid for unit in units}
        return {os.getpid(), *processes.ancestors(), *found}

    def unaware(self) -> list[str]:
        """Name the minions whose jobs cannot be waited for. Empty if the setting allows it."""
        from .core.prepare import beside

        if self.settings.other_minions == "report":
            return []
        daemons = self.daemons()
        told = beside.unaware(daemons, self.known()) if daemons else []
        return [f"{problem} {fix}" for problem, fix in told]

    def written(self) -> tuple[str, ...]:
        """Return the directories on the file systems that an update is installed to."""
        return tuple(self.activation.written(self.roots()))

    def running_jobs(self) -> list[str]:
        """Name the jobs that run now, as "JID function"."""
        return _named(salt.utils.minion.running(self.opts))

    def awaited_jobs(self, but: str) -> list[str]:
        """Name the jobs that run now and that an update waits for, the job *but* left out."""
        return _named(self._awaited(but))

    def _awaited(self, but: str) -> list[dict[str, Any]]:
        from .core.jobs import functions

        return [
            job
            for job in salt.utils.minion.running(self.opts)
            if str(job.get("jid")) != but and not functions.waits_for_update(job.get("fun"))
        ]

    def job_pids(self, but: str) -> list[int]:
        """Return the processes of the jobs that run now; a thread has none of its own."""
        if not self.opts.get("multiprocessing", True):
            return []
        return [int(job["pid"]) for job in self._awaited(but) if job.get("pid") != os.getpid()]


def _master_opts(directory: str) -> dict[str, Any]:
    """Return the configuration of a master. Raises SafeUpdateError: it would not start again."""
    path = os.path.join(directory, "master")
    try:
        return dict(salt.config.master_config(path, exit_on_config_errors=True))
    except (SystemExit, SaltException, OSError) as err:
        # Salt ends the process, as it would end the master's, and has logged why.
        raise SafeUpdateError(
            f"The configuration of the master of this host, {path}, is not valid, so it would not "
            "start again. The log of the minion says why. Nothing was changed; correct it."
        ) from err


def _server(daemon: Daemon, opts: Mapping[str, Any]) -> Server:
    from .core.host import servers
    from .core.host.servers import Server

    if daemon.program != servers.MASTER:
        return Server(unit=daemon.unit, program=daemon.program)
    place = os.path.join(str(opts["cachedir"]), "safeupdate")
    return Server(
        unit=daemon.unit,
        program=daemon.program,
        host=servers.address(str(opts["interface"])),
        port=int(opts["ret_port"]),
        greets=opts.get("transport", "zeromq") == "zeromq",
        engine=place if servers.engine_runs(place) else "",
        keys=os.path.join(str(opts["pki_dir"]), "minions"),
    )


def _tree() -> tuple[str, ...]:
    """Return the directories of Python code that this process runs from."""
    if _has_own_python():
        return (os.path.realpath(sys.prefix),)
    return (os.path.dirname(os.path.realpath(salt.__file__)),)


def _has_own_python() -> bool:
    """Tell whether the interpreter came with Salt, and is not the system's."""
    return sys.prefix not in ("/usr", "/usr/local")


def _named(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    return [f"{job.get('jid')} {job.get('fun')}" for job in jobs]
