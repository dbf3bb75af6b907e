"""Where the stop guard and a minion meet."""

import itertools
import os
import threading

import pytest

from saltext_safeupdate.core.errors import LockUnavailableError
from saltext_safeupdate.core.generations.meeting import Meeting, Step, can_be_asked
from saltext_safeupdate.core.host import processes


@pytest.fixture
def meeting(tmp_path):
    return Meeting(str(tmp_path), 7)


def begin(path, step, pid=7):
    (path / f"handover.{pid}.{step.value}").mkdir()


@pytest.mark.parametrize("step", Step)
def test_it_is_at_one_step(meeting, tmp_path, step):
    begin(tmp_path, step)
    assert [each for each in Step if meeting.is_at(each)] == [step]


def test_of_none_it_is_at_no_step(meeting):
    assert not any(map(meeting.is_at, Step))
    assert not meeting.go(Step.ASKED, Step.TAKING)
    assert not any(map(meeting.is_at, Step))


@pytest.mark.parametrize(("before", "after"), itertools.permutations(Step, 2))
def test_whoever_goes_on_leaves_the_step_before(meeting, tmp_path, before, after):
    begin(tmp_path, before)
    assert meeting.go(before, after)
    assert [each for each in Step if meeting.is_at(each)] == [after]
    assert not meeting.go(before, after)


def test_of_many_that_go_on_at_once_one_does(meeting, tmp_path):
    begin(tmp_path, Step.ASKED)
    others = [step for step in Step if step is not Step.ASKED]
    went, together = [], threading.Barrier(len(others))

    def go(step):
        together.wait()
        if meeting.go(Step.ASKED, step):
            went.append(step)

    threads = [threading.Thread(target=go, args=(step,)) for step in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each for each in Step if meeting.is_at(each)] == went


def test_an_error_is_not_taken_for_another_step(tmp_path):
    (tmp_path / "handover.7.taking").write_text("no directory")
    begin(tmp_path, Step.ASKED)
    with pytest.raises(OSError):
        Meeting(str(tmp_path), 7).go(Step.ASKED, Step.TAKING)


def test_those_of_another_process_are_not_touched(meeting, tmp_path):
    begin(tmp_path, Step.ASKED, pid=77)
    other = Meeting(str(tmp_path), 77)
    other.leave_word("x")
    meeting.end()
    assert not meeting.is_at(Step.ASKED)
    assert not meeting.go(Step.ASKED, Step.TAKING)
    assert other.is_at(Step.ASKED)
    assert (tmp_path / "handover.77.word").exists()


def test_its_word_is_one_line_for_the_same_user_only(meeting, tmp_path):
    meeting.leave_word("/run/other.pid")
    meeting.leave_word("/run/salt-minion.pid")
    word = tmp_path / "handover.7.word"
    assert word.read_text() == "/run/salt-minion.pid\n"
    assert word.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == [word.name]


@pytest.mark.parametrize("step", Step)
def test_a_minion_that_starts_can_be_asked_whatever_another_stop_has_left(tmp_path, step):
    run_dir = tmp_path / "run"
    meeting = Meeting(str(run_dir), os.getpid())
    meeting.open()
    assert meeting.go(Step.OPEN, step) or step is Step.OPEN
    meeting.leave_word("/left")
    meeting.open()
    assert os.listdir(run_dir) == [f"handover.{os.getpid()}.open"]
    assert meeting.is_at(Step.OPEN)
    assert {path.stat().st_mode & 0o777 for path in (run_dir, *run_dir.iterdir())} == {0o700}


def test_what_those_that_are_gone_have_left_is_removed(tmp_path):
    begin(tmp_path, Step.OPEN, pid=4_000_001)
    begin(tmp_path, Step.BACK, pid=4_000_002)
    Meeting(str(tmp_path), 4_000_003).leave_word("x")
    begin(tmp_path, Step.TAKEN, pid=1)
    for name in ("handover.x.open", "4000001.open", "other"):
        (tmp_path / name).mkdir()
    Meeting(str(tmp_path), os.getpid()).open()
    left = ["handover.1.taken", "handover.x.open", "4000001.open", "other"]
    assert sorted(os.listdir(tmp_path)) == sorted([*left, f"handover.{os.getpid()}.open"])


def test_that_it_cannot_be_opened_is_an_error(tmp_path):
    (tmp_path / "run").write_text("no directory")
    with pytest.raises(LockUnavailableError, match="waits for its jobs"):
        Meeting(str(tmp_path / "run"), 7).open()


@pytest.mark.parametrize("step", Step)
def test_at_its_end_nothing_of_it_is_left(meeting, tmp_path, step):
    meeting.end()
    begin(tmp_path, step)
    meeting.leave_word("/run/salt-minion.pid")
    meeting.end()
    assert os.listdir(tmp_path) == []
    meeting.end()


def test_a_word_that_cannot_be_left_is_an_error(tmp_path):
    with pytest.raises(OSError):
        Meeting(str(tmp_path / "gone"), 7).leave_word("x")


def test_a_minion_can_be_asked_once_it_says_so(tmp_path):
    asked = str(tmp_path), processes.me()
    assert not can_be_asked(*asked)
    ours = Meeting(str(tmp_path), os.getppid())
    ours.open()
    assert can_be_asked(*asked)
    assert not can_be_asked(str(tmp_path), f"{processes.me()}0")
    ours.go(Step.OPEN, Step.ASKED)
    assert not can_be_asked(*asked)
