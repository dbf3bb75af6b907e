"""What the main process answers by itself."""

from .conftest import JID


def test_a_ping_is_answered_while_jobs_are_held(world, drain):
    assert world.publish(fun="test.ping") is None
    (answer,) = world.minion.answers
    assert (answer["return"], answer["success"]) == (True, True)


def test_who_asks_for_a_held_job_learns_that_it_is_there(world, drain):
    world.publish()
    for _ in range(2):
        assert world.publish("9", "saltutil.find_job", arg=[JID]) is None
        assert world.minion.answers.pop()["return"]["jid"] == JID
        drain.release()


def test_who_asks_for_an_interrupted_job_learns_that_it_is_there(world):
    data = world.publish()
    world.ledger.begin(JID, "-:1:1")
    assert world.publish("9", "saltutil.find_job", arg=[JID]) is None
    assert world.minion.answers.pop()["return"]["state"] == "running"
    assert data


def test_who_asks_for_a_delivered_job_gets_salts_own_answer(world):
    world.publish()
    world.ledger.delivered(JID)
    assert world.publish("9", "saltutil.find_job", arg=[JID]) is not None
