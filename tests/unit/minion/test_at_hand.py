import linecache

from saltext_safeupdate.minion import at_hand, intake, job_process, ready, returns


def test_no_job_reads_the_source_of_what_it_returns_by(monkeypatch):
    """Salt formats the stack of each job; the children of this process have what it has read."""
    monkeypatch.setattr(linecache, "cache", {})
    at_hand.read()
    for module in (intake, job_process, ready, returns):
        assert linecache.cache[module.__file__]
