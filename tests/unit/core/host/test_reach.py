import socket
import threading

import msgpack
import pytest
import zmq

from saltext_safeupdate.core.host import reach
from saltext_safeupdate.core.host.reach import Address, reaches_any

ONE, TWO = Address("one", 4506), Address("two", 4507)


@pytest.mark.parametrize(
    ("listening", "reached"), [({ONE}, True), ({TWO}, True), ({ONE, TWO}, True), (set(), False)]
)
def test_one_of_several_masters_is_enough(listening, reached):
    def connect(address):
        if address not in listening:
            raise ConnectionRefusedError(111, "Connection refused")

    assert reaches_any([ONE, TWO], connect) is reached


@pytest.mark.parametrize("error", [TimeoutError(), OSError("no route"), UnicodeError("no name")])
def test_what_keeps_from_connecting_is_that_nobody_is_reached(error):
    def connect(address):
        raise error

    assert reaches_any([ONE], connect) is False


def test_the_kernel_accepts_for_a_master_that_stands_still(monkeypatch):
    monkeypatch.setattr(reach, "_ANSWER_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        at = listening.getsockname()
        assert not reaches_any([Address(*at, greets=True)])
        assert reaches_any([Address(*at)]), "which says nothing with another transport"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 503"])
def test_a_load_balancer_accepts_for_a_master_that_is_gone(said):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def balance():
            with listening.accept()[0] as accepted:
                accepted.sendall(said)

        thread = threading.Thread(target=balance)
        thread.start()
        assert not reaches_any([Address(*listening.getsockname(), greets=True)])
        thread.join()


@pytest.mark.parametrize("answers", [True, False])
def test_a_master_has_to_answer_and_not_only_to_greet(monkeypatch, answers):
    """Its port greets while all its workers hang."""
    if not answers:
        monkeypatch.setattr(reach, "_ANSWER_TIMEOUT", 0.2)
    asked = []
    with zmq.Context() as context, context.socket(zmq.REP) as master:
        port = master.bind_to_random_port("tcp://127.0.0.1")

        def answer():
            asked.append(msgpack.unpackb(master.recv()))
            master.send(b"x" * 1000)

        thread = threading.Thread(target=answer)
        if answers:
            thread.start()
        assert reaches_any([Address("127.0.0.1", port, greets=True)]) is answers
        if answers:
            thread.join()
            assert asked == [{"enc": "clear", "load": {"cmd": "ping"}, "version": 3}]
        master.linger = 0
