"""
The policy of this master: it is read from its file, compared with the fleet, and carried out.


A step begins at most one rollout, in the same way as a person. So anything that stops a rollout
stops the policy: quarantine, holds, windows, pre-flights, limits, and another rollout.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import salt.utils.yaml
import salt.version

from ..core.errors import InputError, SafeUpdateError, one_line
from ..core.host import rights
from ..fleet import policy
from ..fleet.policy import Group, Known, Policy, Standing
from ..fleet.request import Group as Target
from ..fleet.request import Request
from . import draining, given_up, orders, planning, questions, rollouts, stocktaking, targets
from .alone import alone
from .newest import Ask, of_series
from .store import Store

# The option of the master that names the file, and the default, next to the master's own file.
OPTION = "safeupdate_policy"
PLACE = os.path.join("safeupdate", "policy.yml")
# Seconds that minions have to report their versions.
REPORT_TIMEOUT = 30.0
_LOCK = "policy.lock"
_BUSY = "Another process is applying the policy. Nothing was started; try again later."


def path_of(opts: Mapping[str, Any]) -> str:
    """Return the path of the policy of the master with these options."""
    named = opts.get(OPTION)
    if named:
        return os.path.abspath(str(named))
    return os.path.join(os.path.dirname(os.path.abspath(str(opts["conf_file"]))), PLACE)


def read(opts: Mapping[str, Any]) -> Policy | None:
    """
    Return the policy; None without a file.

    Raises InputError if others could write to it, or if any part of it is not understood.
    """
    path = path_of(opts)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as err:
        why = f"the user {rights.user()} cannot read it ({err.strerror})"
        raise _broken(path, why) from err
    told = os.fstat(fd)
    if not stat.S_ISREG(told.st_mode):
        os.close(fd)
        raise _broken(path, "it is no regular file")
    with os.fdopen(fd, encoding="utf-8") as file:
        if told.st_uid not in (0, os.geteuid()) or told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _broken(
                path,
                "others than the user of the master may write to it. Let root own it, and allow "
                "nobody else to write to it",
            )
        try:
            return policy.parse(salt.utils.yaml.safe_load(file))
        except InputError as err:
            raise _broken(path, str(err)) from err
        except (salt.utils.yaml.YAMLError, UnicodeDecodeError) as err:
            raise _broken(path, f"it is no YAML: {one_line(err)}") from err


def _broken(path: str, why: str) -> InputError:
    return InputError(
        f"The policy {path} cannot be used: {why.rstrip('.')}. Nothing was started; correct it, "
        "then check it with 'salt-run safeupdate.policy'."
    )


def step(
    opts: Mapping[str, Any],
    *,
    apply: bool = False,
    by: str = "",
    store: Store | None = None,
    ask: Ask = questions.ask,
    clock: Callable[[], float] = time.time,
    order: Callable[..., object] = orders.order,
) -> dict[str, Any]:
    """
    Return the status of the fleet by the policy; with *apply*, begin the next rollout.

    *by* is the person. Raises InputError if the policy is missing or broken, and
    LockHeldError if another process is applying it; then nothing was started.
    """
    found = read(opts)
    if found is None:
        raise InputError(
            f"There is no policy: {path_of(opts)} is not there. Nothing was started; write it, or "
            f"name another file as '{OPTION}' in the configuration of the master."
        )
    store = store or Store(opts)
    with alone(opts, _LOCK, _BUSY) if apply else contextlib.nullcontext():
        known = _known(opts, found, store, ask, clock())
        standings = policy.look(found, known)
        begun, rollout = "", ""
        if apply:
            begun, rollout, standings = _begin(
                opts, found, standings, store, by, ask=ask, clock=clock, order=order
            )
    following = policy.following(standings)
    return {
        "policy": path_of(opts),
        "enabled": found.enabled,
        "at": known.now,
        "groups": [
            vars(each) | {"bring": list(each.bring), "unknown": list(each.unknown)}
            for each in standings
        ],
        "next": begun or (following[0].group if following else ""),
        "begun": rollout,
    }


def _begin(
    opts: Mapping[str, Any],
    found: Policy,
    standings: list[Standing],
    store: Store,
    by: str,
    *,
    ask: Ask,
    clock: Callable[[], float],
    order: Callable[..., object],
) -> tuple[str, str, list[Standing]]:
    """Begin the first possible rollout; return its group, its name, and the status of all."""
    groups = {group.name: group for group in found.groups}
    told = list(standings)
    for each in policy.following(standings):
        place, name = standings.index(each), ""
        try:
            plan = planning.make(
                opts,
                request_of(groups[each.group], each),
                store=store,
                at_once=True,
                ask=ask,
                clock=clock,
            )
            name = plan.id
            if not plan.waves:
                raise InputError("the minions say that there is nothing to do")
            who = f"the policy, group {each.group}" + (f", for {by}" if by else "")
            order(opts, rollouts.BEGIN, {"plan": name, "by": who})
        except SafeUpdateError as err:
            told[place] = replace(each, waits=one_line(err))
            if name and not isinstance(err, InputError):
                # It may have begun nevertheless, and there is one at a time.
                break
        else:
            return each.group, name, told
    return "", "", told


def request_of(group: Group, standing: Standing) -> Request:
    """Return the request for the rollout that updates the minions of a standing."""
    named = Target(group.name, standing.bring, "list")
    wanted = replace(group.wanted, groups=(named,), version=standing.version, exclude=frozenset())
    # The next step includes late minions; all others would wait meanwhile.
    return replace(wanted, leave_late=True)


# -- data ----------------------------------------------------------------------------------


def wanted(
    opts: Mapping[str, Any], minions: Iterable[str]
) -> tuple[dict[str, tuple[str, str]], str]:
    """
    Return the versions of these minions by the policy, with their groups, and its mistakes.

    A series is left out: no minion is asked here for its newest version.
    """
    try:
        found = read(opts)
        if found is None:
            return {}, ""
        members, unsure = _members(opts, found)
    except SafeUpdateError as err:
        return {}, str(err)
    known = Known(members=members, unsure=unsure, records={}, now=0.0, master="")
    meant = policy.wanted_by(found, known)
    return {m: meant[m] for m in minions if m in meant and meant[m][0]}, ""


def _members(
    opts: Mapping[str, Any], found: Policy
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    members, unsure = {}, {}
    for group in found.groups:
        (target,) = group.wanted.groups
        given = list(target.target) if isinstance(target.target, tuple) else target.target
        members[group.name], unsure[group.name] = targets.resolved(opts, given, target.tgt_type)
    return members, unsure


def _known(opts: Mapping[str, Any], found: Policy, store: Store, ask: Ask, now: float) -> Known:
    """Ask the minions of all groups for their versions, and collect all other data."""
    members, unsure = _members(opts, found)
    everybody = sorted({minion for minions in members.values() for minion in minions})

    def asking(
        minions: list[str], fun: str, given: Mapping[str, Any], timeout: float
    ) -> Mapping[str, object]:
        return ask(opts, minions, fun, given or (), timeout)

    master = str(salt.version.__version__)
    accepted = targets.accepted(opts)
    stock = stocktaking.Inventory(
        store,
        asking,
        lambda: 0,
        master=master,
        grains=lambda minions: targets.grains_of(opts, minions),
        clock=lambda: now,
    )
    records, heard = stock.asked(everybody, REPORT_TIMEOUT) if everybody else ({}, frozenset())
    under_way = list(store.under_way())
    # While a rollout is under way none begins, so repositories need not be read.
    looks = found.enabled and (found.side_by_side or not under_way)
    newest = _newest(opts, found, members, heard, ask) if looks else {}
    goals = {group.wanted.version or group.wanted.extension for group in found.groups}
    goals.update(newest.values())
    return Known(
        members=members,
        unsure=unsure,
        unknown={each.name: sorted(each.wanted.exclude - accepted) for each in found.groups},
        records=records,
        heard=heard,
        now=now,
        master=master,
        rollouts={each.plan.id: each.mode.value for each in under_way},
        taken={minion: each.plan.id for each in under_way for minion in each.minions},
        quarantined=store.quarantined(),
        given_up=given_up.by_goal(store, goals, now),
        drained=draining.drained(store, now),
        newest=newest,
    )


def _newest(
    opts: Mapping[str, Any],
    found: Policy,
    members: Mapping[str, Iterable[str]],
    heard: Iterable[str],
    ask: Ask,
) -> dict[str, str]:
    """
    Return the newest version of each series of a group, as far as minions can install it.

    Minions of all groups with that series are asked: one small group must not decide for others.
    """
    meant: dict[str, dict[str, str]] = {}
    there = set(heard)
    for group in found.groups:
        mine = there.intersection(members[group.name])
        there -= mine
        if group.series:
            sources = dict.fromkeys(mine - group.wanted.exclude, group.wanted.source)
            meant.setdefault(group.series, {}).update(sources)
    known = {series: of_series(opts, series, meant[series], ask)[0] for series in meant}
    return {series: version for series, version in known.items() if version}
