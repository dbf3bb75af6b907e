import pytest

from saltext_safeupdate.core.host.reach import reaches_any

ONE, TWO = ("one", 4506), ("two", 4507)


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
