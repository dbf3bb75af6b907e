"""The state that restarts the minion when something that it watches has changed."""

RESTARTED = {"safeupdate.restarted": [{"watch": [{"note": "changed"}]}]}


def _run(*, changes):
    return {
        "changed": {"note.that": [{"changes": changes}]},
        "restart": RESTARTED,
        "last": {"note.that": []},
    }


def test_it_restarts_the_minion_once_and_at_the_end(minion):
    results = minion.apply(_run(changes=True))
    assert minion.journal() == [("note", "changed"), ("note", "last"), ("minion restarts",)]
    assert results["restart"]["result"] is True
    assert results["restart"]["changes"] == {"restart": "deferred"}
    assert minion.record().reason == "state restart"


def test_it_does_nothing_if_nothing_has_changed(minion):
    results = minion.apply(_run(changes=False))
    assert minion.journal() == [("note", "changed"), ("note", "last")]
    assert (results["restart"]["result"], results["restart"]["changes"]) == (True, {})
    assert minion.record() is None


def test_in_test_mode_it_says_that_it_would(minion):
    results = minion.apply(_run(changes=True), test=True)
    assert minion.journal("minion restarts") == []
    assert "would restart" in results["restart"]["comment"]
    assert minion.record() is None
