"""What the engine returns in the place of a job goes to the returners of the job, too."""

import threading

import pytest

from saltext_safeupdate.minion.returners import Returners, names

LOAD = {"cmd": "_return", "id": "m1", "jid": "1", "fun": "cmd.run", "return": "ERROR"}
TOLD = {key: value for key, value in LOAD.items() if key != "cmd"}


@pytest.mark.parametrize(
    ("of_minion", "call", "expected"),
    [
        (None, {"ret": ""}, []),
        (None, {}, []),
        ("", {"ret": "a,b"}, ["a", "b"]),
        ("b", {"ret": "a,b"}, ["a", "b"]),
        ("c", {"ret": ""}, ["c"]),
        ("c", {"ret": {"odd": 1}}, ["c"]),
        # Salt looks at the setting for jobs of one function only.
        ("c", {"ret": "a", "fun": ["one", "two"]}, ["a"]),
    ],
)
def test_they_are_those_that_salt_takes(of_minion, call, expected):
    assert names({"return": of_minion}, {"fun": "cmd.run", **call}) == expected


def test_one_that_fails_keeps_the_return_from_no_other(caplog):
    told, done = [], threading.Event()

    def broken(ret):
        raise ConnectionError("the database is away")

    def noted(ret):
        told.append(ret)
        if len(told) == 2:
            done.set()

    there = {"broken.returner": broken, "noted.returner": noted}
    returners = Returners({}, lambda: there)
    returners.hand_over({"fun": "cmd.run", "ret": ""}, LOAD)
    call = {"fun": "cmd.run", "ret": "broken,missing,noted", "ret_config": "other"}
    returners.hand_over(call, LOAD)
    returners.hand_over(call, {**LOAD, "jid": "2"})
    assert done.wait(60)
    assert told == [{**TOLD, "ret_config": "other"}, {**TOLD, "jid": "2", "ret_config": "other"}]
    assert "the returner broken did not take the return of job 1" in caplog.text
    assert "the returner missing did not take the return of job 2" in caplog.text
    assert "the database is away" in caplog.text
