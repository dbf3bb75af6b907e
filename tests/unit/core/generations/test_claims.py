"""Which generation runs which job."""

import threading

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.generations.claims import Claims
from saltext_safeupdate.core.generations.generation import Standing
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.record.store import Store
from tests.support.simulated import Hasty

HOUR = 3600.0


class HastyStore(Hasty, Store):
    """Nothing of it has to outlive a power cut."""


class Host:
    """A host with its clock, and the claims of whoever asks."""

    def __init__(self, path):
        self.path = str(path / "state" / "safeupdate.db")
        self.now = 1_000_000.0

    def claims(self):
        return Claims(HastyStore(self.path), clock=lambda: self.now)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_job_is_that_of_whoever_claims_it_first(host):
    earlier, later = host.claims(), host.claims()
    assert earlier.claim("1", "a")
    assert not later.claim("1", "b")
    assert later.claim("2", "b")
    assert not earlier.claim("2", "a")
    assert earlier.claim("1", "a"), "it asks again about what is its own"


@pytest.mark.parametrize("standing", [Standing.LEAVING, Standing.GONE, None])
def test_a_name_that_is_used_again_is_nobodys_once_its_process_takes_no_more_jobs(host, standing):
    first, second = processes.identity(1), processes.me()
    claims = host.claims()
    assert claims.claim("word", first, again=True)
    assert not claims.claim("word", second, again=True)
    if standing is not None:
        Generations(HastyStore(host.path)).stands(first, standing)
        assert claims.claim("word", second, again=True)
        assert not claims.claim("word", first, again=True)


def test_a_name_that_is_used_again_is_nobodys_once_its_process_has_ended(host):
    alive, dead = processes.me(), f"{processes.me()}0"
    claims = host.claims()
    assert claims.claim("word", dead, again=True)
    assert claims.claim("word", alive, again=True)
    assert claims.claim("1", dead)
    assert not claims.claim("1", alive), "no other job has the same JID"


def test_of_many_that_claim_at_once_one_gets_each_job(host):
    names, won = [str(number) for number in range(10)], []
    begin = threading.Barrier(4)

    def claim(process):
        mine = host.claims()
        begin.wait()
        for name in names:
            if mine.claim(name, process):
                won.append(name)

    threads = [threading.Thread(target=claim, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == names


@pytest.mark.parametrize("seconds", [HOUR + 1, -HOUR - 1])
def test_what_is_old_by_whichever_clock_is_forgotten(host, seconds):
    claims = host.claims()
    claims.claim("1", "a")
    host.now += seconds
    claims.claim("2", "a")
    claims.forget()
    assert claims.claim("1", "b"), "nobody knows of it any more"
    assert not claims.claim("2", "b")


@pytest.mark.parametrize("seconds", [0, 600, -600])
def test_what_is_new_is_kept(host, seconds):
    claims = host.claims()
    claims.claim("1", "a")
    host.now += seconds
    claims.forget()
    assert not claims.claim("1", "b")


@pytest.mark.parametrize("what", ["claim", "forget"])
def test_that_the_database_cannot_be_used_is_an_error(host, tmp_path, what):
    (tmp_path / "state").write_text("no directory")
    with pytest.raises(SafeUpdateError):
        host.claims().claim("1", "a") if what == "claim" else host.claims().forget()
