"""Whose answers count, and how many are asked at once."""

import pytest
from salt.exceptions import SaltClientError

from saltext_safeupdate.master import questions, replies
from saltext_safeupdate.master.questions import MOST_MINIONS, PACE, Questions

FUN = "safeupdate.report"


class World:
    """Minions that answer if they are told to."""

    def __init__(self):
        self.now, self.published, self.error = 0.0, [], None
        self.came, self.overs = {}, 0
        self.questions = Questions(
            self.publish, lambda: f"jid{len(self.published)}", clock=lambda: self.now
        )

    def publish(self, jid, minions, fun, arg):
        self.published.append((jid, list(minions), fun, list(arg)))
        if self.error:
            raise self.error

    def put(self, minions, **more):
        given = {"timeout": 10.0, "heard": self.heard, "over": self.over, **more}
        self.questions.put(minions, FUN, [1], **given)

    def heard(self, minion, packed):
        assert minion not in self.came
        self.came[minion] = replies.unpack(packed)

    def over(self):
        self.overs += 1

    def answer(self, minion, value, jid="jid0", fun=FUN):
        load = {"id": minion, "jid": jid, "fun": fun, "return": value, "success": True}
        text = replies.of(load, questions.FUNCTIONS)[2]
        self.questions.heard([[jid, minion, "token", 0, 1, text]])

    def tick(self, seconds=PACE):
        self.now += seconds
        self.questions.tick()


@pytest.fixture
def world():
    return World()


def test_all_answer(world):
    world.put(["b", "a"])
    world.tick()
    assert world.published == [("jid0", ["a", "b"], FUN, [1])]
    world.answer("a", "A")
    assert world.overs == 0
    world.answer("b", "B")
    assert (world.came, world.overs) == ({"a": "A", "b": "B"}, 1)
    assert world.questions.idle


def test_what_does_not_count(world):
    """Who was not asked, a second answer, another job, one that comes too late, half a note."""
    world.put(["a", "b"])
    world.tick()
    world.answer("mallory", "forged")
    world.answer("a", "another job", jid="jid7")
    world.answer("a", "first")
    world.answer("a", "second")
    world.questions.heard([["jid0"], [5, 6, 7, 8, 9], [{}, 1, 2, 3, 4]])
    world.tick(10.0)
    world.answer("b", "late")
    assert (world.came, world.overs) == ({"a": "first"}, 1)
    assert world.questions.idle


def test_an_answer_may_come_before_the_publication_has_returned(world):
    real = world.publish
    world.questions._publish = lambda jid, *rest: (real(jid, *rest), world.answer("a", 1, jid))
    world.put(["a"])
    world.tick()
    assert (world.came, world.overs) == ({"a": 1}, 1)


def test_many_are_asked_a_part_after_the_other_and_what_is_urgent_first(world):
    names = [f"m{number:04}" for number in range(MOST_MINIONS * 2 + 1)]
    world.put(names)
    world.put(["z"], urgent=True)
    world.tick()
    world.questions.tick()
    assert [sent[1] for sent in world.published] == [["z"]]
    for _ in range(3):
        world.tick()
    assert [len(sent[1]) for sent in world.published] == [1, MOST_MINIONS, MOST_MINIONS, 1]
    world.tick(20.0)
    assert world.overs == 2


def test_a_publication_that_fails_is_no_answer(world, caplog):
    world.error = SaltClientError("no master")
    world.put(["a"])
    world.tick()
    assert "1 minions cannot be asked safeupdate.report: no master" in caplog.text
    assert (world.came, world.overs, world.questions.idle) == ({}, 1, True)


def test_nobody_is_asked_nothing(world):
    world.put([])
    world.tick()
    assert (world.published, world.overs) == ([], 1)
