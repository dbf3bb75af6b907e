"""
Which functions that a minion uses are no longer in the core of another Salt series.

Salt 3008 dropped more than half of the modules of 3007. Some live on as packages of their own,
which are Salt extensions. Those that are installed before the update come along.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from .removed_modules_data import FILES, NAMES, SERIES

# The packages that bring a file of the core back. They are published, and we saw the file in
# them. We know of no package for the other files.
PACKAGES = {
    "saltext-safeupdate": "executors/transactional_update modules/rebootmgr "
    "modules/transactional_update",
    "saltext.acme": "modules/acme states/acme",
    "saltext.alpine": "modules/apkpkg",
    "saltext.apache": "modules/deb_apache modules/suse_apache",
    "saltext.apcups": "modules/apcups",
    "saltext.azurerm": "modules/azurearm_compute modules/azurearm_dns modules/azurearm_network "
    "modules/azurearm_resource states/azurearm_compute states/azurearm_dns "
    "states/azurearm_network states/azurearm_resource",
    "saltext.btrfs": "modules/btrfs states/btrfs",
    "saltext.cassandra": "returners/cassandra_cql_return",
    "saltext.consul": "modules/consul sdb/consul states/consul",
    "saltext.dockermod": "engines/docker_events executors/docker modules/container_resource "
    "modules/dockercompose modules/dockermod states/docker_container states/docker_image "
    "states/docker_network states/docker_volume",
    "saltext.elasticsearch": "modules/elasticsearch states/elasticsearch",
    "saltext.freezer": "modules/freezer",
    "saltext.grafana": "modules/grafana4 states/grafana states/grafana4_dashboard "
    "states/grafana4_datasource states/grafana4_org states/grafana4_user "
    "states/grafana_dashboard states/grafana_datasource",
    "saltext.influxdb": "modules/influxdb08mod modules/influxdbmod returners/influxdb_return "
    "states/influxdb08_database states/influxdb08_user states/influxdb_continuous_query "
    "states/influxdb_database states/influxdb_retention_policy states/influxdb_user",
    "saltext.kubernetes": "modules/kubeadm modules/kubernetesmod states/kubernetes",
    "saltext.ldap": "modules/ldap3 modules/ldapmod states/ldap",
    "saltext.mongodb": "modules/mongodb states/mongodb_database states/mongodb_user",
    "saltext.mysql": "returners/mysql states/mysql_database states/mysql_grants "
    "states/mysql_query states/mysql_user",
    "saltext.openscap": "modules/openscap",
    "saltext.pagerduty": "modules/pagerduty modules/pagerduty_util "
    "states/pagerduty_escalation_policy states/pagerduty_schedule states/pagerduty_service",
    "saltext.pushover": "modules/pushover_notify returners/pushover_returner states/pushover",
    "saltext.redis": "engines/redis_sentinel modules/redismod returners/redis_return "
    "sdb/redis_sdb states/redismod",
    "saltext.snapper-state": "states/snapper",
    "saltext.splunk": "modules/splunk modules/splunk_search returners/splunk states/splunk "
    "states/splunk_search",
    "saltext.stalekey": "engines/stalekey",
    "saltext.telegram": "beacons/telegram_bot_msg modules/telegram returners/telegram_return",
    "saltext.vault": "modules/vault sdb/vault states/vault",
    "saltext.zabbix": "modules/zabbix returners/zabbix_return states/zabbix_action "
    "states/zabbix_host states/zabbix_hostgroup states/zabbix_mediatype states/zabbix_template "
    "states/zabbix_user states/zabbix_usergroup states/zabbix_usermacro states/zabbix_valuemap",
    "saltext.zfs": "modules/zfs modules/zpool states/zfs states/zpool",
    "saltext.zookeeper": "modules/zookeeper states/zk_concurrency states/zookeeper",
}
# States whose file stays although their execution module is removed.
HOLLOW = {
    "apache_conf": "deb_apache",
    "apache_module": "deb_apache",
    "apache_site": "deb_apache",
    "makeconf": "makeconf",
    "uptime": "uptime",
}
_OURS = "saltext-safeupdate"
_SERIES = re.compile(r"(?:\d+:)?(\d{4})\b")
_SLOT = re.compile(r"__slot__:salt:([A-Za-z0-9_]+\.[A-Za-z0-9_]+)\(")
_FUNCTION = re.compile(r"[A-Za-z0-9_]+\.[A-Za-z0-9_]+")


class Use(NamedTuple):
    """
    One function that this minion uses, such as ``zfs.list``; of other loaders, a name.

    *kind* is the directory of the loader. *file* is the file of Salt's core that has the
    function here, if that is known: several files may have the same name for the loader.
    """

    kind: str
    function: str
    file: str = ""

    @property
    def name(self) -> str:
        return self.function.partition(".")[0]


class Gone(NamedTuple):
    """A use that ends with the update, and the package that keeps it, if there is one."""

    use: Use
    package: str | None


def series(version: str) -> str | None:
    """Return the series of a version of Salt or of its package; None if it names none."""
    found = _SERIES.match(version)
    return found[1] if found else None


def used(chunks: Iterable[Mapping[str, Any]]) -> set[Use]:
    """
    Return what these low chunks use, as ``state.show_lowstate`` returns them.

    No chunk shows what only a template calls while it is rendered.
    """
    found = set()
    for chunk in chunks:
        found.add(Use("states", f"{chunk.get('state')}.{chunk.get('fun')}"))
        found.update(Use("modules", function) for function in _called(chunk))
    return found


def gone(uses: Iterable[Use], current: str, target: str) -> list[Gone]:
    """
    Return the uses that the core of *current* has and the core of *target* no longer has.

    Both are versions. A series newer than the newest known one counts as that one.
    """
    here, there = _known(current), _known(target)
    found = []
    for use in sorted(set(uses)):
        lost = [file for file in _files(use) if _has(*file, here) and not _has(*file, there)]
        packages = {_package(*file) for file in lost}
        if lost and packages != {_OURS}:
            found.append(Gone(use, next(iter(sorted(filter(None, packages))), None)))
    return found


def _called(chunk: Mapping[str, Any]) -> Iterator[str]:
    """Yield the execution functions that a chunk calls by itself."""
    if chunk.get("state") == "module":
        # Both forms: the function is the name, or a key.
        yield from (key for key in (str(chunk.get("name")), *map(str, chunk)) if _named(key))
    if chunk.get("state") == "schedule" and _named(str(chunk.get("function"))):
        yield str(chunk["function"])
    for requisite in ("onlyif", "unless", "check_cmd"):
        conditions = chunk.get(requisite)
        for condition in conditions if isinstance(conditions, list) else [conditions]:
            if isinstance(condition, dict) and _named(str(condition.get("fun"))):
                yield str(condition["fun"])
    for text in _texts(chunk):
        yield from _SLOT.findall(text)


def _named(text: str) -> bool:
    return _FUNCTION.fullmatch(text) is not None


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _files(use: Use) -> list[tuple[str, str]]:
    """Return the files that the use may come from, and that it needs."""
    files = [(use.kind, file) for file in ([use.file] if use.file else _by_name(use))]
    if use.kind == "states" and use.name in HOLLOW:
        files.append(("modules", HOLLOW[use.name]))
    return files


def _by_name(use: Use) -> list[str]:
    """Return the files that the loader knows by this name."""
    return [file for file in _spans(use.kind) if use.name in _names(use.kind, file)]


def _names(kind: str, file: str) -> list[str]:
    return NAMES.get(kind, {}).get(file, file).split()


def _has(kind: str, file: str, version: str) -> bool:
    first, _, last = _spans(kind).get(file, "-").partition("-")
    return bool(first) and first <= version <= last


@cache
def _spans(kind: str) -> dict[str, str]:
    """Return the first and the last series of each file of a loader."""
    return {name: span for span, names in FILES.get(kind, {}).items() for name in names.split()}


@cache
def _package(kind: str, file: str) -> str | None:
    wanted = f"{kind}/{file}"
    return next((name for name, files in PACKAGES.items() if wanted in files.split()), None)


def _known(version: str) -> str:
    return max(SERIES[0], min(SERIES[-1], series(version) or SERIES[-1]))
