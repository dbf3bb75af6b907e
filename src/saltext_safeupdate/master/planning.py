"""
Making a plan for a rollout, in the process of a runner.

The engine asks the minions. This module finds the minions of a target, and makes the plan.
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core import times
from ..core.errors import InputError, one_line, version_text, visible
from ..core.record.phase import Phase
from ..fleet import inventory, platforms, versions, way_back, window
from ..fleet import plan as plans
from ..fleet import request as requests
from ..fleet.manner import manner
from ..fleet.plan import Draw, Facts, Plan
from ..fleet.request import Group, Request
from ..fleet.rollout import Rollout
from ..fleet.versions import reached
from . import below, draining, gate, newest, questions, targets
from .newest import PLAN_TIMEOUT, Ask, by_chance
from .progress import say_that_minions_are_asked
from .refusals import refuse_beside, refuse_kept
from .replies import Failed
from .store import Store
from .targets import accepted, resolved

# Seconds that minions have to report their versions.
REPORT_TIMEOUT = 30.0
# Seconds after which a plan is too old to be run.
MOST_AGE = 86400.0
_PHASES = frozenset(phase.value for phase in Phase)
# The number of the newest rollouts from which the usual time of a minion is taken.
_HISTORY = 5
# The finding of a minion whose administrator keeps the version of its packages.
_LOCKED = "version-locked"
# The most characters of the reason of a hold.
_LONGEST = 200


def make(
    opts: Mapping[str, Any],
    wanted: Request,
    *,
    store: Store | None = None,
    at_once: bool = False,
    ask: Ask = questions.ask,
    clock: Callable[[], float] = time.time,
    draw: Draw = by_chance,
) -> Plan:
    """
    Ask all targeted minions, make a plan, store it, and return it.

    From then on, a series is replaced by its newest version.
    *draw* chooses the canaries. A plan that has nothing to do is not stored, and its name is
    empty. Raises InputError if no plan is possible, and LockHeldError if it is to be run *at_once*
    and one of the minions is in another rollout that is not over; then nothing is stored.
    """
    _refuse_never(wanted, clock())
    for name in sorted(wanted.gates):
        gate.named(opts, name)
    store = store or Store(opts)
    before = came_from(store, wanted)
    refuse_nobody(opts, wanted)
    members, unknown = members_of(opts, wanted)
    below.refuse(opts, members)
    unknown |= _barred(store, wanted, before)
    everybody = sorted({minion for minions in members.values() for minion in minions})
    drained = draining.drained(store, clock())
    unknown |= {m: Facts(held=drained[m]) for m in everybody if m in drained}
    wanted = newest.exact(opts, wanted, set(everybody).difference(unknown, wanted.exclude), ask)
    refuse_quarantined(store, wanted.version)
    # Find cheap mistakes before hundreds of package managers are asked.
    plans.make(wanted, members, unknown, plan_id="none", number=0, now=0.0, before=before)
    if at_once:
        _refuse_in_others(store, set(everybody).difference(wanted.exclude), clock())
    facts = {
        **_facts(opts, wanted, [m for m in everybody if m not in unknown], before, ask),
        **unknown,
    }
    facts |= below.syndics(opts, set(everybody).difference(facts))
    now = clock()
    found = plans.make(
        wanted,
        members,
        facts,
        # The name is new, and sorts by time.
        plan_id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(2)}",
        number=int(now * 1e6),
        now=now,
        seconds=_usual_seconds(store),
        before=before,
        elsewhere={m: other.plan.id for other in store.under_way() for m in other.minions},
        draw=draw,
    )
    if not found.waves:
        return replace(found, id="")
    store.save_plan(found)
    return found


def _refuse_never(wanted: Request, now: float) -> None:
    """Raise InputError if no update could ever start."""
    at = max(now, wanted.at)
    for group in wanted.groups:
        own = wanted.of(group.name)
        if window.next_begin(own.windows, at, own.closed) == window.NEVER:
            where = f" of {group.name}" if own is not wanted else ""
            raise InputError(
                f"None of the 'windows'{where} opens again, or the days of all are closed, so "
                "no update could start. Nothing was started; give another window."
            )


def refuse_quarantined(store: Store, *versions: str) -> None:
    """Raise InputError for versions that are kept from all minions."""
    refuse_kept(store.quarantined(), *versions)


def came_from(store: Store, wanted: Request) -> dict[str, str]:
    """Return the version that each minion goes back to; empty if nothing is taken back."""
    if not wanted.back:
        return {}
    version = wanted.back if way_back.is_version(wanted.back) else ""
    return way_back.before(taken_back(store, wanted.back), version)


def _barred(store: Store, wanted: Request, before: Mapping[str, str]) -> dict[str, Facts]:
    """Return the minions that cannot go back to their former version."""
    if not wanted.back:
        return {}
    version = version_taken_back(store, wanted.back)
    barred = way_back.barred(wanted.back, version, before, store.quarantined())
    return {minion: Facts(problem=why) for minion, why in barred.items()}


def version_taken_back(store: Store, back: str) -> str:
    """Return the version that is taken back; empty if the record of its rollout is gone."""
    if way_back.is_version(back):
        return back
    found = store.outline(back)
    return "" if found is None else found.version


def taken_back(store: Store, back: str) -> list[Rollout]:
    """
    Return the rollouts to take back, the newest last, or raise InputError.

    For a version, later rollouts to other versions are among them: their minions stay.
    """
    if not way_back.is_version(back):
        found = store.rollout(back)
        if found is None:
            raise InputError(
                f"There is no rollout {back} to go back from. Nothing was started; "
                "'salt-run safeupdate.status' lists all."
            )
        return [found]
    listed: list[Rollout] = []
    for name, outline in store.outlines().items():
        ours = versions.stand_for_each_other(outline.version, back)
        # Ways back have no version of their own.
        if (ours or (listed and outline.version)) and (found := store.rollout(name)):
            listed.append(found)
    if not listed:
        raise InputError(
            f"No stored rollout has installed {back}, so the former versions of minions are not "
            "known. Nothing was started; name the version to go to, with 'allow_downgrade=True'."
        )
    return listed


def check(
    opts: Mapping[str, Any],
    found: Plan,
    *,
    store: Store,
    most_age: float = MOST_AGE,
    ask: Ask = questions.ask,
    clock: Callable[[], float] = time.time,
) -> list[str]:
    """
    Return the changes since a plan was made. Raise InputError if it cannot be run any more.

    The engine checks the important ones again when it begins.
    """
    age = clock() - found.created
    if age > most_age:
        raise InputError(
            f"The plan {found.id} is {age / 3600:.1f} hours old, and {most_age / 3600:.1f} are "
            "allowed. Nothing was started; make a new plan, or give 'max_age' in seconds."
        )
    refuse_quarantined(store, found.request.version, *sorted(set(found.versions.values())))
    _refuse_in_others(store, found.minions, clock(), found.id)
    members, _ = members_of(opts, found.request)
    now = {minion for minions in members.values() for minion in minions}
    planned = set(found.minions) | set(found.left_out)
    changed = [
        f"{minion}: belongs to the target now, and is not in the plan"
        for minion in sorted(now - planned)
    ]
    gone = sorted(set(found.minions) - now)
    if gone:
        changed += [f"{minion}: does not belong to the target any more" for minion in gone]
        raise InputError(
            f"{'; '.join(changed[:10])}. Nothing was started: the target of the plan {found.id} "
            "matches other minions now. Make a new plan."
        )
    answers = ask(opts, found.minions, "safeupdate.report", (), REPORT_TIMEOUT)
    for minion in found.minions:
        said = answers.get(minion)
        if isinstance(said, Mapping):
            changed += _changed(found, minion, said)
        elif minion not in found.away:
            changed.append(f"{minion}: does not answer now")
    return changed


def _refuse_in_others(store: Store, minions: Collection[str], now: float, own: str = "") -> None:
    for other in store.under_way():
        if other.plan.id != own:
            refuse_beside(other, minions, now)


def _changed(found: Plan, minion: str, said: Mapping[str, Any]) -> list[str]:
    if minion in found.away:
        return [f"{minion}: answers again"]
    wanted = found.request
    known = _described(said)
    version = found.versions.get(minion, "") if wanted.back else wanted.version
    there = version and reached(known.version, known.installed, version)
    if there and not wanted.extension:
        return [f"{minion}: runs {known.version} already"]
    return []


# -- targets ---------------------------------------------------------------------------------


def members_of(
    opts: Mapping[str, Any], wanted: Request
) -> tuple[dict[str, list[str]], dict[str, Facts]]:
    """Return the minions of each group, and minions about which the master knows too little."""
    members: dict[str, list[str]] = {}
    unknown: dict[str, Facts] = {}
    meant: set[str] = set()
    for group in wanted.groups:
        sure, maybe = resolved(opts, _target(group), group.tgt_type)
        nobody = sorted(_named(group).difference(sure))
        members[group.name] = [*sure, *maybe, *nobody]
        where = f"; {below.BELOW}" if below.of_masters(opts) else ""
        problem = f"named, and no minion with an accepted key is called that{where}"
        unknown |= dict.fromkeys(nobody, Facts(problem=problem))
        unknown |= {
            minion: Facts(
                problem="its grains or pillar are not known, so nobody knows if it belongs to "
                f"{group.name}; run 'saltutil.refresh_grains' there first, or name it"
            )
            # The earliest group of a minion decides.
            for minion in maybe
            if minion not in meant
        }
        meant.update(set(sure) - unknown.keys())
    return members, unknown


def refuse_nobody(opts: Mapping[str, Any], wanted: Request) -> None:
    """Raise InputError if an unknown minion is to be left out: it may be misspelt."""
    odd = sorted(wanted.exclude - accepted(opts)) if wanted.exclude else []
    if odd:
        raise InputError(
            f"'exclude' has {', '.join(map(repr, odd[:5]))}, and no minion with an accepted key is "
            "called that. It takes the IDs of minions, as a list or with commas between them, and "
            "no patterns. Nothing was started."
        )


def _named(group: Group) -> set[str]:
    """Return the minions that a group names; empty for another kind of target."""
    if group.tgt_type != "list":
        return set()
    return set(group.target.split(",") if isinstance(group.target, str) else group.target)


def _target(group: Group) -> str | list[str]:
    return list(group.target) if isinstance(group.target, tuple) else group.target


# -- answers of minions ------------------------------------------------------------------------


def _facts(
    opts: Mapping[str, Any],
    wanted: Request,
    minions: Sequence[str],
    before: Mapping[str, str],
    ask: Ask,
) -> dict[str, Facts]:
    """Return the facts about the minions that answer."""
    asked = [minion for minion in minions if minion not in wanted.exclude]
    if wanted.back:
        asked = [minion for minion in asked if minion in before]
    say_that_minions_are_asked(opts, len(asked), REPORT_TIMEOUT + PLAN_TIMEOUT)
    reports = ask(opts, asked, "safeupdate.report", (), REPORT_TIMEOUT)
    lacking = [minion for minion, said in reports.items() if inventory.is_lacking(said)]
    grains = targets.grains_of(opts, lacking) if lacking else {}
    found = {
        minion: _described(said, platforms.unsupported(said, grains.get(minion, {})))
        if minion in lacking
        else _described(said)
        for minion, said in reports.items()
    }
    checked: dict[str, list[str]] = {}
    for minion, known in found.items():
        version = before.get(minion, "") if wanted.back else wanted.version
        fit = not (known.problem or known.held or known.unsupported or known.busy)
        if fit and version and not reached(known.version, known.installed, version):
            checked.setdefault(version, []).append(minion)
    for version, these in checked.items():
        given = {"version": version, **manner(wanted)}
        answers = ask(opts, these, "safeupdate.plan", given, PLAN_TIMEOUT)
        for minion in these:
            found[minion] = _checked(found[minion], answers.get(minion))
    return found


def _described(answer: object, unsupported: str = "") -> Facts:
    if unsupported:
        return Facts(unsupported=unsupported)
    if not isinstance(answer, Mapping):
        told = f": {one_line(answer)}" if isinstance(answer, Failed) else ""
        return Facts(problem=f"safeupdate does not work there, or is too old{told}")
    version, installed, extension = (
        visible(answer.get(name) or "") for name in ("version", "installed", "extension")
    )
    phase = str(answer.get("phase") or "idle")
    under_way = phase in _PHASES and not Phase(phase).final
    # The minion would hold all other questions until the update is over.
    busy = f"an update is under way there ({phase})" if under_way else ""
    held = one_line(answer.get("held") or "")[:_LONGEST]
    return Facts(version=version, installed=installed, extension=extension, busy=busy, held=held)


def _checked(known: Facts, answer: object) -> Facts:
    """Return the facts with the result of a minion's pre-flight."""
    problem = held = ""
    steps: tuple[str, ...] = ()
    if answer is None:
        problem = f"its pre-flight did not end in {PLAN_TIMEOUT:.0f} s"
    elif not isinstance(answer, Mapping):
        problem = f"its pre-flight failed: {one_line(answer)}"
    else:
        steps = tuple(visible(step) for step in _listed(answer.get("steps")))
        found = [item for item in _listed(answer.get("findings")) if isinstance(item, Mapping)]
        blocking = [item for item in found if item.get("blocking")]
        locked = [item.get("problem") for item in found if item.get("code") == _LOCKED]
        held = one_line(locked[0])[:_LONGEST] if locked else ""
        problem = one_line(
            " ".join(
                f"[{item.get('code')}] {item.get('problem')} {item.get('fix')}" for item in blocking
            )
        )
    reboot = isinstance(answer, Mapping) and answer.get("reboot") is True
    return replace(known, steps=steps, problem=problem.strip(), reboot=reboot, held=held)


def _listed(value: object) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()


def _usual_seconds(store: Store) -> float:
    """Return the usual seconds of a minion, from the newest rollouts; 0 without any."""
    seconds = [outline.usual for outline in store.outlines().values() if outline.usual]
    return statistics.median(seconds[-_HISTORY:]) if seconds else 0.0


def requested(store: Store, target: object, tgt_type: str, wanted: Mapping[str, Any]) -> Request:
    """
    Return the request: with a target, or with ``groups`` among the settings.

    With ``back`` among them, it takes that rollout back, or a part of it if there is a target.
    """
    settings = dict(wanted)
    if settings.get("back"):
        part = None
        if target is not None:
            part = requests.group("a part", target, tgt_type)
        back = version_text("back", settings["back"])
        settings = way_back.settings(taken_back(store, back), back, settings, part)
    elif target is not None:
        if settings.get("groups"):
            raise InputError("Give a target or 'groups', not both.")
        settings["groups"] = [{"target": target, "tgt_type": tgt_type}]
    requests.refuse_time_of_day(settings)
    return requests.from_mapping(settings)


def as_data(found: Plan, zone: object = times.UTC) -> dict[str, Any]:
    """Return a plan as plain data; ``nothing_to_do`` says why it has no waves."""
    told = {**plans.to_data(found), "nothing_to_do": plans.nothing_to_do(found)}
    return times.beside(told, ("created",), zone)
