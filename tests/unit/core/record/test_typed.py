"""JSON as values of a type."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import pytest

from saltext_safeupdate.core.record import typed


class Place(NamedTuple):
    host: str
    port: int = 4506


@dataclass(frozen=True)
class Whole:
    name: str
    count: int = 0
    at: float | None = None
    known: bool = False
    places: tuple[Place, ...] = ()
    pair: tuple[str, bool] = ("", False)
    words: dict[str, str] = field(default_factory=dict)
    anything: tuple[Any, ...] = ()


PLACES = st.builds(Place, st.text(), st.integers())
WHOLES = st.builds(
    Whole,
    name=st.text(),
    count=st.integers(),
    at=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    known=st.booleans(),
    places=st.lists(PLACES).map(tuple),
    pair=st.tuples(st.text(), st.booleans()),
    words=st.dictionaries(st.text(), st.text()),
    anything=st.lists(st.none() | st.booleans() | st.integers() | st.text()).map(tuple),
)


@hypothesis.given(WHOLES)
def test_what_is_written_comes_back_as_it_was(whole):
    assert typed.read(Whole, json.loads(json.dumps(typed.plain(whole)))) == whole


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((str, 5), (int, "5"), (int, True), (int, 1.5), (float, True), (float, "1"), (bool, 1)),
        *((float, float("nan")), (float, float("inf")), (tuple[str, ...], "it")),
        *((tuple[str, ...], [1]), (tuple[str, bool], ["a"]), (dict[str, str], {"a": 1})),
        *((dict[str, str], []), (str | None, 5), (Place, ["m"]), (Place, ["m", "4506"])),
        *((Whole, []), (Whole, {}), (Whole, {"name": 5}), (Whole, {"name": "a", "places": [[]]})),
    ],
)
def test_what_is_of_another_type_is_an_error(kind, value):
    with pytest.raises(TypeError):
        typed.read(kind, value)


def test_what_a_newer_version_has_added_is_left_out():
    assert typed.read(Whole, {"name": "a", "newer": [1]}) == Whole("a")


def test_a_whole_number_is_a_number_of_seconds():
    found = typed.read(float, 5)
    assert (found, type(found)) == (5.0, float)
