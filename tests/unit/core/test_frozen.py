"""Values that share their functions: they are what the dataclasses of Python are."""

from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace

import pytest

from saltext_safeupdate.core.frozen import changeable, frozen


def classes(make):
    @make
    class Place:
        """Somewhere."""

        name: str
        number: int = 1
        found: dict = field(default_factory=dict)
        serial: int = field(default=0, compare=False)

        def __post_init__(self):
            if self.number < 0:
                raise ValueError("it is negative")

    @make
    class Other:
        """Elsewhere."""

        name: str

    return Place, Other


@pytest.fixture(params=["ours", "Python's"])
def made(request):
    """Ours, and what it is to be like."""
    return classes(frozen if request.param == "ours" else dataclass(frozen=True, kw_only=True))


def test_they_are_compared_by_what_is_to_be_compared(made):
    place, other = made
    assert place(name="a", serial=1) == place(name="a", serial=2)
    assert place(name="a") != place(name="b")
    assert place(name="a") != other(name="a")
    assert place(name="a") != "a"


def test_they_have_defaults_of_their_own(made):
    place, _ = made
    one, two = place(name="a"), place(name="a")
    one.found["x"] = 1
    assert (two.number, two.found, two.serial) == (1, {}, 0)


@pytest.mark.parametrize("given", [{}, {"name": "a", "what": 1}, {"number": 2}])
def test_what_is_missing_or_too_much_is_an_error(made, given):
    with pytest.raises(TypeError):
        made[0](**given)


def test_they_are_given_by_name_only(made):
    with pytest.raises(TypeError):
        made[1]("a")


def test_nothing_of_them_changes(made):
    one = made[0](name="a")
    with pytest.raises(FrozenInstanceError):
        one.name = "b"
    with pytest.raises(FrozenInstanceError):
        one.what = "b"
    with pytest.raises(FrozenInstanceError):
        del one.name
    assert one.name == "a"


def test_they_check_themselves(made):
    place, _ = made
    with pytest.raises(ValueError, match="negative"):
        place(name="a", number=-1)
    with pytest.raises(ValueError, match="negative"):
        replace(place(name="a"), number=-1)


def test_they_are_dataclasses(made):
    place, _ = made
    one = replace(place(name="a", number=2), name="b")
    assert is_dataclass(one)
    assert [each.name for each in fields(one)] == ["name", "number", "found", "serial"]
    assert asdict(one) == {"name": "b", "number": 2, "found": {}, "serial": 0}


def test_they_say_what_they_are(made):
    assert repr(made[1](name="a")).endswith("Other(name='a')")


def test_those_that_can_be_are_keys(made):
    _, other = made
    assert {other(name="a"), other(name="a"), other(name="b")} == {other(name="a"), other(name="b")}
    with pytest.raises(TypeError):
        hash(made[0](name="a"))


def test_a_class_brings_no_code_of_its_own():
    one, two = (each for each in classes(frozen))
    shared = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
    assert all(getattr(one, name) is getattr(two, name) for name in shared)


@pytest.mark.parametrize("make", [changeable, dataclass(kw_only=True, eq=False, repr=False)])
def test_others_may_change_and_are_each_one_of_its_own(make):
    place, other = classes(make)
    one, two = place(name="a"), place(name="a")
    one.number, one.found["x"] = 2, 1
    assert (one.name, one.number, two.number, two.found) == ("a", 2, 1, {})
    assert one != two
    assert len({one, two}) == 2
    with pytest.raises(TypeError):
        other("a")
    with pytest.raises(TypeError):
        other()
    with pytest.raises(ValueError, match="negative"):
        place(name="a", number=-1)
