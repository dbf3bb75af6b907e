"""What is kept of rollouts that are over."""

from saltext_safeupdate.fleet import tidying
from saltext_safeupdate.fleet.rollout import Mode
from saltext_safeupdate.fleet.stored import Outline

DAY = tidying.DAY
NOW = 1000 * DAY


def over(days: float, back: str = "", **counts: int) -> Outline:
    return Outline(
        mode=Mode.FINISHED,
        why="",
        owner="m/1",
        looked=NOW - days * DAY,
        version="3008.3",
        extension="",
        newest=1,
        usual=0.0,
        counts=counts or {"done": 1},
        unfit=0,
        back=back,
    )


def gone(kept: int = 2, **found: Outline) -> list[str]:
    return tidying.gone(found, {}, NOW, kept=kept)


def test_what_a_policy_leaves_alone_is_remembered_beyond_the_number() -> None:
    newer = {f"r{number}": over(2 + number) for number in range(3)}
    failed, missed = over(50, done=5, rolled_back=1), over(50, done=5, missed=1)
    assert gone(**newer, failed=failed, back=over(51, back="r9")) == ["r2"]
    assert gone(**newer, missed=missed) == ["missed", "r2"]
    old = {"failed": over(359, failed=1), "older": over(361, failed=1), "new": over(1)}
    assert gone(**old, over=over(91)) == ["older", "over"]


def test_what_was_done_within_a_day_is_counted_by_a_policy_and_stays() -> None:
    hours = {f"r{number:02}": over(number / 24) for number in range(30)}
    assert gone(**hours) == [f"r{number}" for number in range(25, 30)]


def test_it_is_the_minions_that_take_room() -> None:
    many = {f"r{number}": over(2 + number, done=400_000) for number in range(4)}
    assert gone(kept=99, **many) == ["r2", "r3"]
    assert gone(kept=99, **many, small=over(9)) == ["r2", "r3"]
