"""
Plans and rollouts as text for a terminal.

Names and reasons come from minions. None of them may move the cursor, change a title or look like
another line: whatever is not a plain visible character is replaced before it is shown.
"""

from __future__ import annotations

import time
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.times import UTC, in_zone
from . import window
from .columns import WIDTH, Line, columns, wrapped, wrapped_text
from .plan import Plan, nothing_to_do
from .request import OF_A_GROUP, Group, group_data

# The parts of a line mean "good", "bad", "work", "dim" or "".

# Characters of a name and of a reason that are shown, of why a rollout stands, and names in a row.
LONGEST, _WHY, MOST = 200, 500, 8
BAR = 40
# The least marks of a useful bar, and the columns of a wave's line without its words.
_LEAST_BAR, _WAVE = 4, 15
# What the parts of a bar are drawn with: done, failed, under way, still to come.
MARKS = (("#", "good"), ("!", "bad"), (">", "work"), (".", "dim"))
KINDS = {
    "done": "good",
    "asked": "work",
    "updating": "work",
    "to_reboot": "work",
    "slow": "work",
    "busy": "work",
    "waiting": "dim",
    "away": "dim",
    "missed": "dim",
    "cancelled": "dim",
    "held": "dim",
}


def clean(told: object, longest: int = LONGEST) -> str:
    """Return one line of visible characters; of a longer text only the beginning."""
    text = " ".join(str(told)[: 4 * longest].split())
    # Categories C (controls, directions of writing, unassigned) and Z (other separators).
    text = "".join(
        "\ufffd" if char != " " and unicodedata.category(char)[0] in "CZ" else char for char in text
    )
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def seconds(value: float) -> str:
    """Return a duration as a person says it."""
    if value < 90:
        return f"{value:.0f} s"
    if value < 5400:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"


def moment(at: float) -> str:
    """Return a time in UTC; which time zone a terminal is in is not known to a master."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def plain(lines: Iterable[Line]) -> str:
    return "\n".join("".join(part for part, _ in line).rstrip() for line in lines)


def shown(told: str, zone: object = UTC) -> str:
    """Return a text with its times in that zone, in lines that fit; see :func:`.times.zone`."""
    # First the zone: such a time may be longer, and one that a line end breaks is not found.
    return wrapped_text(in_zone(told, zone))


def text(found: Mapping[str, Any], zone: object = UTC) -> str:
    """Return the summary of a rollout (:func:`..summary.summary`) as text; see :func:`shown`."""
    return shown(plain(_lines(found)), zone)


def lines(found: Mapping[str, Any]) -> list[Line]:
    """Return the summary of a rollout as lines that fit."""
    return [piece for line in _lines(found) for piece in wrapped(line)]


def _lines(found: Mapping[str, Any]) -> list[Line]:
    """Return the whole, the problems, the waves."""
    return [*_whole(found), *_problems(found), *_waves(found)]


def goal(version: str, extension: str, back: str = "") -> str:
    if back:
        return clean(f"back from {back}")
    parts = [f"extension {extension}"] if extension else []
    parts += [f"Salt {version}"] if version else []
    return clean(", then ".join(parts))


def _whole(found: Mapping[str, Any]) -> list[Line]:
    mode = str(found["mode"])
    kind = {"finished": "good", "running": "work"}.get(mode, "bad")
    counts, minions = found["counts"], found["minions"]
    bad, active = _of(found["waves"], "bad"), _of(found["waves"], "active")
    result: list[Line] = [
        [
            (f"Rollout {clean(found['rollout'])}: ", ""),
            (mode, kind),
            (
                f", wave {found['wave']} of {len(found['waves'])},"
                f" {goal(found['version'], found['extension'], found['back'])}",
                "",
            ),
        ]
    ]
    if found["why"]:
        result.append([(f"  {clean(found['why'], _WHY)}", kind)])
    if dead := not_looked_after(found):
        result.append([(f"  {dead}", "bad")])
    result.append([("  ", ""), *bar(minions, counts.get("done", 0), bad, active)])
    shares = [
        (f"{n} {step.replace('_', ' ')}", KINDS.get(step, "bad")) for step, n in counts.items()
    ]
    told: Line = [(f"  {minions} minions: ", "")]
    for number, part in enumerate(shares):
        told += [(", ", ""), part] if number else [part]
    result.append(told)
    if waits := found["waits_for"]:
        jobs = [f"{clean(name, 60)} for {_jobs(number)}" for name, number in waits.items()]
        more = f" and {len(jobs) - MOST} more" if len(jobs) > MOST else ""
        result.append([(f"  waits: {', '.join(jobs[:MOST])}{more}", "work")])
    limits = f"  {found['down']} away or at work ({found['may_be_down']} may be)"
    limits += f", {bad} failed ({found['may_fail']} may)"
    if not counts.get("done") and found.get("staged"):
        limits += f", {found['staged']} have downloaded it"
    if found["left_out"]:
        limits += f", {found['left_out']} left out"
    result.append([(limits, "")])
    result.append([(f"  {_pace(found)}", "dim")])
    return result


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"


def not_looked_after(found: Mapping[str, Any]) -> str:
    """Return who should look after a rollout and does not; empty if that is as it should be."""
    if found.get("looked_after", True):
        return ""
    if reason := found.get("stood_down"):
        return f"nobody looks after it: {clean(reason, 500)}"
    return (
        f"nobody looks after it: the engine 'safeupdate_redeliver' of {clean(found['owner'])} has "
        f"not done so since {moment(found['looked'])}; see whether that master runs, and its log"
    )


def _of(waves: Sequence[Mapping[str, Any]], key: str) -> int:
    return sum(int(wave[key]) for wave in waves)


def _pace(found: Mapping[str, Any]) -> str:
    by = f" by {clean(found['by'])}" if found["by"] else ""
    parts = [f"begun {moment(found['began'])}{by}"]
    if found["seconds"]:
        parts.append(f"one minion takes {seconds(found['seconds']['median'])}")
    if found["rate"]:
        parts.append(f"{found['rate']:.0f} an hour")
    if found["remaining"]:
        parts.append(f"about {seconds(found['remaining'])} left")
    if found["window_begins"]:
        parts.append(f"the window opens {moment(found['window_begins'])}")
    return ", ".join(parts)


def _problems(found: Mapping[str, Any]) -> list[Line]:
    if not found["problems"]:
        return []
    result: list[Line] = [[("", "")], [("Problems", "")]]
    names = [clean(row["minion"], 60) for row in found["problems"]]
    width = max(map(len, names))
    for name, row in zip(names, found["problems"], strict=True):
        what, why = _what(row), clean(row["why"])
        said = f"  {why}" if why else ""
        result.append(
            [(f"  {name:{width}}  ", ""), (f"{what:11}", KINDS.get(row["what"], "bad")), (said, "")]
        )
    return result


def _what(row: Mapping[str, str]) -> str:
    """Return in words what is wrong with the minion of a row."""
    return clean(row["what"], 20).replace("_", " ")


def _waves(found: Mapping[str, Any]) -> list[Line]:
    result: list[Line] = [[("", "")], [("Waves", "")]]
    groups = [_group(wave) for wave in found["waves"]]
    sums = [
        f"{wave['done']} of {wave['minions']}" + (f", {wave['away']} away" if wave["away"] else "")
        for wave in found["waves"]
    ]
    width = max(map(len, groups), default=0)
    # The space that the longest line leaves for the bars; without space no bar is drawn.
    rows = list(zip(groups, sums, found["waves"], strict=True))
    others = max((len(told) + len(wave["state"]) for _, told, wave in rows), default=0)
    room = min(BAR // 2, WIDTH - width - others - _WAVE)
    for number, (group, told, wave) in enumerate(rows, 1):
        drawn: Line = []
        if room >= _LEAST_BAR:
            drawn = bar(wave["minions"], wave["done"], wave["bad"], wave["active"], room)
            drawn.append(("  ", ""))
        result.append(
            [
                (f"  {number:3}  {group:{width}}  ", ""),
                *drawn,
                (told, ""),
                (f"  {wave['state']}", "work" if wave["state"] == "under way" else "dim"),
            ]
        )
    return result


def _group(wave: Mapping[str, Any]) -> str:
    return clean(wave["group"], 40) + (" (canaries)" if wave["canary"] else "")


def bar(total: int, done: int, bad: int, active: int, width: int = BAR) -> Line:
    """Return a bar in which whatever there is has a mark at least."""
    parts = (done, bad, active, max(total - done - bad - active, 0))
    marks = [max(part * width // max(total, 1), 1) if part else 0 for part in parts]
    # The widest part pays for what the others were rounded up.
    marks[marks.index(max(marks))] += width - sum(marks)
    drawn = zip(marks, MARKS, strict=True)
    return [("[", ""), *((mark * n, kind) for n, (mark, kind) in drawn if n), ("]", "")]


def changes(before: Mapping[str, Any] | None, found: Mapping[str, Any]) -> list[str]:
    """Return a line for the rollout if it has changed, and one for each problem that is new."""
    result = []
    keys = ("mode", "why", "goal", "wave", "counts")
    if before is None or any(before[key] != found[key] for key in keys):
        counts = ", ".join(f"{n} {step.replace('_', ' ')}" for step, n in found["counts"].items())
        why = f" ({clean(found['why'], _WHY)})" if found["why"] else ""
        result.append(
            f"{found['mode']}{why}: wave {found['wave']} of {len(found['waves'])}, {counts}"
        )
    waited = before["waits_for"] if before else ()
    result += [
        f"{clean(name, 60)}: updating: waits for {_jobs(number)}"
        for name, number in found["waits_for"].items()
        if name not in waited
    ]
    if (dead := not_looked_after(found)) and (not before or not not_looked_after(before)):
        result.append(dead)
    # How long a slow one has taken changes all the time.
    known = {(row["minion"], row["what"]) for row in before["problems"]} if before else set()
    result += [
        ": ".join(filter(None, (clean(row["minion"], 60), _what(row), clean(row["why"]))))
        for row in found["problems"]
        if (row["minion"], row["what"]) not in known
    ]
    return [f"{moment(found['looked'])}  {line}" for line in result]


def plan_text(plan: Plan, zone: object = UTC) -> str:
    """
    Return a plan as text: groups, waves, canaries, the estimate, and who is left out and why.

    See :func:`shown`.
    """
    return shown("\n".join(_plan_lines(plan)), zone)


def _plan_lines(plan: Plan) -> list[str]:
    wanted = plan.request
    if told := nothing_to_do(plan):
        return [f"{goal(wanted.version, wanted.extension, wanted.back)}: {clean(told)}"]
    total = len(plan.minions) + len(plan.left_out)
    result = [
        f"Plan {clean(plan.id)}: {goal(wanted.version, wanted.extension, wanted.back)} for"
        f" {len(plan.minions)} of {total} minions in {len(plan.waves)} waves",
        f"  takes {'about ' + seconds(plan.expected) if plan.expected else 'nobody knows how long'}"
        f", {plan.unavailable} may be away at once, stops if more than {plan.failed} fail",
    ]
    if plan.versions:
        counted = Counter(plan.versions.values()).most_common()
        told = ", ".join(f"{number} to {version}" for version, number in counted)
        result.append(f"  {clean(told)}")
    if plan.sized:
        result.append(f"  {clean(plan.sized)}")
    if wanted.windows:
        result.append(f"  only {clean('; '.join(each.text for each in wanted.windows))}")
    if wanted.closed:
        result.append(f"  not on {clean('; '.join(each.text for each in wanted.closed))}")
    if wanted.at:
        result.append(f"  not before {moment(wanted.at)}")
    result += [line for group in wanted.groups for line in _own(group)]
    result += _closed_now(plan)
    result += ["", "Waves"]
    groups = [_group({"group": wave.group, "canary": wave.canary}) for wave in plan.waves]
    width = max(map(len, groups), default=0)
    for number, (group, wave) in enumerate(zip(groups, plan.waves, strict=True), 1):
        told = f"  {number:3}  {group:{width}}  {len(wave.minions):5}  "
        result.append(told + _names_within(wave.minions, WIDTH - columns(told)))
    if plan.away:
        result += ["", f"Away now, updated when they come back ({len(plan.away)})"]
        result.append(f"  {names(sorted(plan.away))}")
        if len(plan.away) >= plan.unavailable:
            result.append("  Nobody begins before some are back: exclude them, or allow more")
    result += _gathered("Busy now, updated when they can be", plan.busy.items())
    if plan.reboots:
        result += ["", f"A reboot of the host activates it ({len(plan.reboots)})"]
        result.append(f"  {names(sorted(plan.reboots))}")
    result += _gathered("Left out", plan.left_out.items())
    result += _gathered(
        "In a rollout that is not over, so this plan waits for its end", (plan.elsewhere.items())
    )
    steps = ((name, ", ".join(steps)) for name, steps in plan.steps.items())
    return [*result, *_gathered("Upgrade steps", steps)]


def _own(group: Group) -> list[str]:
    """Return what a group has of its own."""
    told = {key: value for key, value in group_data(group).items() if key in OF_A_GROUP}
    listed = [
        f"{key} {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in told.items()
    ]
    return [f"  {clean(group.name, 40)}: {clean('; '.join(listed))}"] if listed else []


def _closed_now(plan: Plan) -> list[str]:
    """Return when the first one can begin, if that is not now; and of a way back, how it can."""
    wanted = plan.request.of(plan.waves[0].group)
    if window.is_open(wanted.windows, plan.created, wanted.closed):
        return []
    begins = window.next_begin(wanted.windows, plan.created, wanted.closed)
    told = [f"  nobody begins before {moment(begins)}"] if begins < window.NEVER else []
    if wanted.back:
        told.append("  these times are of what is taken back: 'windows=[] closed=[]' goes at once")
    return told


def _gathered(title: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return minions by what is the same for them, the most frequent first."""
    by: dict[str, list[str]] = {}
    for name, what in pairs:
        by.setdefault(what, []).append(name)
    if not by:
        return []
    rows = sorted(by.items(), key=lambda row: -len(row[1]))
    head = ["", f"{title} ({sum(len(these) for _, these in rows)})"]
    return [*head, *(f"  {len(these):5}  {clean(what)}: {names(these)}" for what, these in rows)]


def names(given: Sequence[str], most: int = MOST) -> str:
    """Return the names of minions, the first ones of many."""
    more = len(given) - most
    told = ", ".join(clean(name, 60) for name in given[:most])
    return f"{told} and {more} more" if more > 0 else told


def _names_within(given: Sequence[str], width: int) -> str:
    """Return as many names as so many columns have space for, one at least."""
    told = (names(given, most) for most in range(MOST, 0, -1))
    return next((each for each in told if columns(each) <= width), names(given, 1))
