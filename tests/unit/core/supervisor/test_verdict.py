"""The table of verdicts, row by row, as the page on health has it."""

import itertools
import pathlib
import re

import pytest

from saltext_safeupdate.core.supervisor.verdict import (
    KEY_REFUSED,
    LOOP,
    MASTER_REFUSED,
    Probe,
    Seen,
    Verdict,
    decide,
)

PAGE = pathlib.Path(__file__).parents[4] / "docs/topics/explanation/health.md"
UP = {"stable": True}
SILENT = {**UP, "probe": Probe.PENDING}
ANSWERED = {**UP, "probe": Probe.ANSWERED}
DOWN = {"reported": False, "probe": Probe.NEEDLESS}
# What follows, what the page calls it, and what is seen.
_BY_VERDICT = {
    Verdict.ILL: {
        "Its unit has failed": DOWN | {"active": "failed"},
        "It has restarted by itself for the third time": UP | {"loops": LOOP},
        "It does not report before its time is up, and the old minion did": DOWN | {"over": True},
        "This extension does not know the new Salt, and knew the old one": (
            ANSWERED | {"stood_down": True}
        ),
        "The return of the probe is a failure, because Salt cannot load its function": (
            ANSWERED | {"broken": "test.py: SyntaxError"}
        ),
        "The health check fails": ANSWERED | {"check": "no"},
        "The health check does not end": ANSWERED | {"checking": "job 1", "over": True},
        "Its process does not stay the same before the time is up": (
            ANSWERED | {"stable": False, "over": True}
        ),
    },
    Verdict.SILENT: {
        "The probe is not answered; the master is reachable, and the old minion reached it": (
            SILENT | {"over": True, "reachable": True}
        ),
    },
    Verdict.REFUSED: {
        "Its master refuses its key": DOWN | {"active": "failed", "status": KEY_REFUSED},
        "It refuses the key of its master": DOWN | {"active": "failed", "status": MASTER_REFUSED},
    },
    Verdict.STOPPED: {
        "Somebody has stopped it": DOWN | {"active": "inactive", "stopped": True},
    },
    Verdict.UNPROVEN: {
        "It does not report, and its configuration no longer names the engine": (
            DOWN | {"over": True, "set_up": False}
        ),
        "It does not report, and neither did the old minion": DOWN
        | {"over": True, "had_reported": False},
        "The probe is not answered, and no process of this host can reach the master": (
            SILENT | {"late": True, "reachable": False}
        ),
        "The probe is not answered, and the address of its master is not known": (
            SILENT | {"over": True}
        ),
        "The probe is not answered, and was not answered before the update either": SILENT
        | {"master": False},
        "The probe is not answered, and it is not known whether the old one would have answered": (
            SILENT | {"master": None, "over": True, "reachable": True}
        ),
        "The probe is not answered, and Salt has ended the engine": (
            SILENT | {"over": True, "reachable": True, "engine": False}
        ),
        "No master has accepted its key yet": SILENT | {"pending": "renamed"},
        "It started before this extension was installed": (
            {**UP, "probe": Probe.NEEDLESS, "unhooked": True}
        ),
        "The health check is an SLS, and cannot run": ANSWERED | {"unchecked": True},
        "The health check does not end, and no process of this host can reach the master": (
            ANSWERED | {"checking": "job 1", "late": True, "reachable": False}
        ),
        "The health check does not end, because other jobs came first": (
            ANSWERED | {"checking": "job 1", "check_waited": True, "over": True}
        ),
        "The health check does not end, and Salt has ended the engine": (
            ANSWERED | {"checking": "job 1", "over": True, "engine": False}
        ),
    },
    Verdict.WELL: {
        "This extension knows neither the new Salt nor the old one": (
            {**UP, "probe": Probe.NEEDLESS, "stood_down": True, "had_stood_down": True}
        ),
        "The return of the probe arrives, whatever its code": ANSWERED,
        "The minion has no master": {**UP, "probe": Probe.NEEDLESS},
    },
}
ROWS = {row: (seen, verdict) for verdict, rows in _BY_VERDICT.items() for row, seen in rows.items()}
# What only needs more time.
WAITING = {
    "nothing has been seen": DOWN,
    "no start of it has been seen": {"came": False, "active": "failed", **DOWN},
    "it is started again, because there is no way back": {
        "active": "failed",
        "patient": True,
        **DOWN,
    },
    "its process is young": {"probe": Probe.ANSWERED},
    "the probe is under way": SILENT,
    "the master is away": {**SILENT, "reachable": False},
    "the health check is under way": {**ANSWERED, "checking": "job 1"},
    "the health check waits for other state runs": {
        **ANSWERED,
        "checking": "job 1",
        "check_waited": True,
    },
    "the health check is under way, and the master is away": {
        **ANSWERED,
        "checking": "job 1",
        "reachable": False,
    },
    "the first looks for a master": {**SILENT, "master": None},
}
WORDS = {
    Verdict.WELL: "committed",
    Verdict.UNPROVEN: "committed, unproven",
    Verdict.STOPPED: "committed, and left stopped",
    Verdict.REFUSED: "failed, and not rolled back",
    Verdict.ILL: "rolled back",
    Verdict.SILENT: "rolled back; in quarantine if the old minion reaches the master again",
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_table(row):
    seen, verdict = ROWS[row]
    assert decide(Seen(**seen)).verdict is verdict


@pytest.mark.parametrize("what", WAITING)
def test_it_waits_while(what):
    assert decide(Seen(**WAITING[what])).verdict is Verdict.WAIT


def test_the_page_has_these_rows():
    told = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0] in ROWS:
            told[cells[0]] = re.sub(r"`", "", cells[1])
    assert told == {row: WORDS[verdict] for row, (_, verdict) in ROWS.items()}


def test_nothing_waits_for_ever_and_no_silence_is_proof():
    """Whatever is seen when the time is up, there is a verdict; none undoes what is not proven."""
    flags = ("stopped", "stable", "reported", "had_reported", "patient")
    for values in itertools.product([True, False], repeat=len(flags)):
        for probe, master, reachable in itertools.product(
            Probe, (True, False, None), (True, False, None)
        ):
            seen = Seen(
                **dict(zip(flags, values, strict=True)),
                probe=probe,
                master=master,
                reachable=reachable,
                over=True,
                late=True,
            )
            verdict = decide(seen).verdict
            assert verdict is not Verdict.WAIT
            if verdict is Verdict.SILENT:
                assert master is True
                assert reachable is True
