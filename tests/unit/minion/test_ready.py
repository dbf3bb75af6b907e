"""What is done once a minion is ready: once, and whatever becomes of it."""

from saltext_safeupdate import patches
from saltext_safeupdate.minion.ready import Ready


def test_it_is_done_once_before_whatever_comes_first():
    done = []
    ready = Ready([lambda: done.append("this"), lambda: done.append("that")])
    job = ready.before(lambda *args, **kwargs: done.append((args, kwargs)) or "job")
    look = ready.before(lambda: done.append("look"))
    assert done == []
    assert job(1, two=2) == "job"
    look()
    assert done == ["this", "that", ((1,), {"two": 2}), "look"]


def test_an_error_is_told_and_the_rest_is_done(monkeypatch, caplog):
    monkeypatch.setattr(patches, "_troubles", {})
    done = []
    ready = Ready([lambda: done.missing, lambda: done.append("that")])
    assert ready.before(lambda: "job")() == "job"
    assert done == ["that"]
    assert "as with plain Salt" in caplog.text
