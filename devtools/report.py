"""Text for people: outcomes of experiments side by side."""

from __future__ import annotations

from collections.abc import Sequence

from devtools.observe import Moment
from devtools.outcome import Job, Outcome, state_names, update_name

LABEL_WIDTH = 24
COLUMN_WIDTH = 46
LABELS = ("plain Salt", "with saltext-safeupdate")


def side_by_side(outcomes: Sequence[Outcome]) -> str:
    """Return tables that compare the outcomes of one pair of versions."""
    first = outcomes[0]
    heads = [LABELS[out.extension] for out in outcomes]
    lines = [f"== salt-minion {first.old} -> {first.new}, updated by a highstate of its own =="]
    lines += _table("", heads, _job_rows(outcomes))
    lines += _table("states", heads, _state_rows(outcomes))
    lines += _table("before / after", heads, _end_rows(outcomes))
    for head, out in zip(heads, outcomes, strict=True):
        lines += ["", f"-- timeline, {head} (seconds) --", *timeline(out)]
    for head, out in zip(heads, outcomes, strict=True):
        wrong = out.verdict()
        lines += [
            "",
            f"-- verdict, {head}: {f'{len(wrong)} things wrong' if wrong else 'nothing lost'} --",
        ]
        lines += [f"  {text}" for text in wrong]
    return "\n".join(lines)


def timeline(out: Outcome) -> list[str]:
    return [f"{moment.time - out.began:8.1f}  {moment.what}" for moment in _condensed(out.timeline)]


def _condensed(moments: Sequence[Moment]) -> list[Moment]:
    return [moment for moment in moments if "half-configured" not in moment.what]


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["", title.ljust(LABEL_WIDTH) + "".join(head.ljust(COLUMN_WIDTH) for head in heads)]
    lines.append("-" * (LABEL_WIDTH + COLUMN_WIDTH * len(heads)))
    for label, *cells in rows:
        lines.append(
            (label.ljust(LABEL_WIDTH) + "".join(c.ljust(COLUMN_WIDTH) for c in cells)).rstrip()
        )
    return lines


def _job_rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    labels = list(dict.fromkeys(job.label for out in outcomes for job in out.jobs))
    rows = [["job", *("" for _ in outcomes)]]
    for label in labels:
        rows.append([f"  {label}", *(_job_cell(out, label) for out in outcomes)])
    rows.append(["  pings", *(_pings(out) for out in outcomes)])
    return rows


def _job_cell(out: Outcome, label: str) -> str:
    job = next((job for job in out.jobs if job.label == label), None)
    if job is None:
        return "not sent (no such moment)"
    if job.lost:
        work = "" if label == "highstate" else f", work begun {job.started}x, ended {job.ended}x"
        return f"LOST{work}"
    return f"returned after {_took(job)}{_runs(job)}"


def _took(job: Job) -> str:
    return f"{job.returned - job.published:.1f} s" if job.returned else "? s (job cache only)"


def _runs(job: Job) -> str:
    bad = job.label != "highstate" and (job.started, job.ended) != (1, 1)
    return f", BUT begun {job.started}x, ended {job.ended}x" if bad else ""


def _pings(out: Outcome) -> str:
    lost = sum(ping.lost for ping in out.pings)
    return f"{len(out.pings) - lost} of {len(out.pings)} returned" + (
        f", {lost} LOST" if lost else ""
    )


def _state_rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    def order(out: Outcome) -> str:
        ran = [name.removeprefix("step-") for name in out.order]
        return f"{len(ran)} of {len(state_names()) - 1}"

    def returned(out: Outcome) -> str:
        if out.highstate.lost:
            return "LOST"
        good = sum(bool(ok) for ok in out.states.values())
        return f"{good} of {len(out.states)} succeeded"

    def update_position(out: Outcome) -> str:
        names = list(out.states)
        return (
            f"{names.index(update_name()) + 1} of {len(names)}" if update_name() in names else "-"
        )

    def sequence(out: Outcome) -> str:
        ran = [name.removeprefix("step-") for name in out.order]
        return " ".join(ran[:10]) or "-"

    def sequence2(out: Outcome) -> str:
        return " ".join(name.removeprefix("step-") for name in out.order[10:]) or "-"

    return [
        ["  other states that ran", *map(order, outcomes)],
        ["  their order", *map(sequence, outcomes)],
        ["", *map(sequence2, outcomes)],
        ["  results returned", *map(returned, outcomes)],
        ["  update ran as number", *map(update_position, outcomes)],
    ]


def _end_rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    def packages(found: dict[str, tuple[str, str]]) -> str:
        return ", ".join(
            f"{name} {version}" + ("" if status == "install ok installed" else f" ({status})")
            for name, (version, status) in sorted(found.items())
        )

    def service(state: dict[str, str]) -> str:
        return "/".join(state.get(k, "?") for k in ("ActiveState", "SubState", "UnitFileState"))

    return [
        ["  running, before", *(out.running_before for out in outcomes)],
        ["  running, after", *(out.running_after or "NO ANSWER" for out in outcomes)],
        ["  dpkg, before", *(packages(out.packages_before) for out in outcomes)],
        ["  dpkg, after", *(packages(out.packages_after) for out in outcomes)],
        ["  service, before", *(service(out.service_before) for out in outcomes)],
        ["  service, after", *(service(out.service_after) for out in outcomes)],
        ["  tracebacks in its log", *(str(len(out.tracebacks)) for out in outcomes)],
        ["  seconds", *(f"{out.seconds:.0f}" for out in outcomes)],
    ]
