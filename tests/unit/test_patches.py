import functools
import types

import pytest

from saltext_safeupdate import patches
from saltext_safeupdate.patches import Patch, UnknownSaltError


@pytest.fixture
def salt():
    class Minion:
        def handle(self, data):
            return f"plain {data}"

        @classmethod
        def target(cls, opts, data):
            return f"plain {cls.__name__} {data}"

        @staticmethod
        def limit(opts):
            return 1

    return Minion


def _around(original):
    def replacement(*args, **kwargs):
        return ("ours", original(*args, **kwargs))

    return replacement


def test_each_kind_of_function_is_replaced(salt):
    module = types.ModuleType("salt.x")
    module.call = lambda function: "plain call"
    patches.apply(
        [
            Patch(salt, "handle", ("self", "data"), _around),
            Patch(salt, "target", ("cls", "opts", "data"), _around),
            Patch(salt, "limit", ("opts",), _around),
            Patch(module, "call", ("function",), _around),
        ]
    )
    assert salt().handle(1) == ("ours", "plain 1")
    assert salt.target({}, 2) == salt().target({}, 2) == ("ours", "plain Minion 2")
    assert salt.limit({}) == ("ours", 1)
    assert module.call(None) == ("ours", "plain call")


@pytest.mark.parametrize(
    ("name", "parameters", "told"),
    [
        ("gone", ("self",), "Minion.gone is not there"),
        ("target", ("cls", "data"), r"Minion.target takes \(cls, opts, data\)"),
        ("__module__", (), "Minion.__module__ is not there"),
    ],
)
def test_a_salt_that_differs_is_left_as_it_is(salt, name, parameters, told):
    table = [
        Patch(salt, "handle", ("self", "data"), _around),
        Patch(salt, name, parameters, _around),
    ]
    with pytest.raises(UnknownSaltError, match=told):
        patches.apply(table)
    assert salt().handle(1) == "plain 1"


def test_what_a_class_only_inherits_is_not_its_own(salt):
    class Proxy(salt):
        pass

    assert patches.differences([Patch(Proxy, "handle", ("self",), _around)]) == [
        f"{Proxy.__module__}.Proxy.handle is not there"
    ]


def test_what_needs_more_than_a_replacement_gives_it_is_left_as_it_is(salt):
    """Where we call it ourselves, nobody would give it the rest."""
    table = [
        Patch(salt, "handle", ("self", "data"), _around),
        Patch(salt, "target", ("cls", "opts"), _around),
    ]
    with pytest.raises(UnknownSaltError, match=r"Minion.target takes \(cls, opts, data\)"):
        patches.apply(table)
    assert salt().handle(1) == "plain 1"


def test_a_function_that_does_not_tell_what_it_takes_is_not_known(salt):
    salt.handle = dict.pop
    (problem,) = patches.differences([Patch(salt, "handle", ("self",), _around)])
    assert "does not tell what it takes" in problem


def _decorated(original):
    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        return ["theirs", original(*args, **kwargs)]

    return wrapper


def _hidden(original):
    def wrapper(*args, **kwargs):
        return ["theirs", original(*args, **kwargs)]

    return wrapper


@pytest.mark.parametrize("theirs", [_decorated, _hidden])
def test_what_another_extension_has_wrapped_is_seen_through(salt, theirs):
    salt.handle = theirs(theirs(salt.handle))
    assert patches.differences([Patch(salt, "handle", ("self", "other"), _around)]) == [
        f"{salt.__module__}.Minion.handle takes (self, data)"
    ]
    patches.apply([Patch(salt, "handle", ("self", "data"), _around)])
    assert salt().handle(1) == ("ours", ["theirs", ["theirs", "plain 1"]])


def test_what_another_extension_wraps_afterwards_is_still_ours(salt):
    patches.apply([Patch(salt, "handle", ("self", "data"), _around)])
    salt.handle = _hidden(salt.handle)
    assert salt().handle(1) == ["theirs", ("ours", "plain 1")]


def test_if_one_cannot_be_replaced_none_is(salt):
    def fails(original):
        return original.nothing

    table = [
        Patch(salt, "handle", ("self", "data"), _around),
        Patch(salt, "target", ("cls", "opts", "data"), fails),
    ]
    with pytest.raises(UnknownSaltError, match=r"Minion.target cannot be replaced.*nothing"):
        patches.apply(table)
    assert salt().handle(1) == "plain 1"


async def _waits(self, data):
    """A coroutine function."""


async def _waits_and_yields(self, data):
    yield data


def _yields(self, data):
    yield data


@pytest.mark.parametrize("theirs", [lambda plain: plain, _decorated, _hidden])
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_waits, "a coroutine function"),
        (_waits_and_yields, "an asynchronous generator function"),
        (_yields, "a generator function"),
    ],
)
def test_what_does_not_run_when_it_is_called_is_not_known(salt, function, told, theirs):
    salt.handle = theirs(function)
    row = Patch(salt, "handle", ("self", "data"), _around)
    if function is not _yields or theirs is not _decorated:
        assert patches.differences([row]) == [f"{salt.__module__}.Minion.handle is {told}"]
    waits = patches.differences([row._replace(may_wait=True)])
    assert waits == [] if function is _waits else waits or theirs is _decorated


class Newer:
    """A function as a later patch release may have it."""

    def __init__(self, outcome="salt's"):
        self.outcome, self.called = outcome, []

    def __call__(self, *args, **kwargs):
        self.called.append((args, kwargs))
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def replaced(self, handle, refuses=()):
        def function(data, cmd="_return", *args, **kwargs):
            return self(data, cmd, *args, **kwargs)

        return patches.replaced(("data", "cmd"), handle, refuses)(function)


@pytest.fixture(autouse=True)
def _no_troubles(monkeypatch):
    monkeypatch.setattr(patches, "_troubles", {})


@pytest.mark.parametrize(
    ("args", "kwargs", "seen", "passed"),
    [
        ((1,), {}, (1,), ((1, "mine"), {})),
        ((1, 2), {}, (1, 2), ((1, "mine"), {})),
        ((1,), {"cmd": 2}, (1, 2), ((1, "mine"), {})),
        ((), {"cmd": 2, "data": 1}, (1, 2), ((1, "mine"), {})),
        ((1, 2, 3), {}, (1, 2), ((1, "mine", 3), {})),
        ((1,), {"more": 4}, (1,), ((1, "mine"), {"more": 4})),
        ((), {"data": 1, "more": 4}, (1,), ((1, "mine"), {"more": 4})),
        ((1, 2, 3), {"more": 4}, (1, 2), ((1, "mine", 3), {"more": 4})),
    ],
)
def test_a_replacement_passes_on_what_it_does_not_know(args, kwargs, seen, passed):
    given, salts = [], Newer()

    def handle(original, data, *cmd):
        given.append((data, *cmd))
        return "ours", original(data, "mine")

    assert salts.replaced(handle)(*args, **kwargs) == ("ours", "salt's")
    assert (given, salts.called) == ([seen], [passed])


def _before(original, data):
    raise RuntimeError("ours")


def _after(original, data):
    original(data)
    raise RuntimeError("ours")


def _finally(original, data):
    try:
        return original(data)
    finally:
        raise RuntimeError("ours")


def _instead(original, data):
    patches.instead(original, "held")
    raise RuntimeError("ours")


@pytest.mark.parametrize(
    ("handle", "value", "calls"),
    [(_before, "salt's", 1), (_after, "salt's", 1), (_finally, "salt's", 1), (_instead, "held", 0)],
)
def test_an_error_of_ours_fails_no_call_and_is_told_once(handle, value, calls, caplog):
    salts = Newer()
    replacement = salts.replaced(handle)
    for _ in range(3):
        assert replacement(1) == value
    assert len(salts.called) == 3 * calls, "nothing is called twice"
    (place,) = patches.troubles()
    assert patches.troubles()[place] == "RuntimeError: ours"
    assert len([record for record in caplog.records if place in record.getMessage()]) == 1


@pytest.mark.parametrize("handle", [_after, _finally])
def test_an_error_of_salt_is_the_callers(handle):
    salts = Newer(KeyError("salt's"))
    with pytest.raises(KeyError, match="salt's"):
        salts.replaced(handle)(1)
    assert len(salts.called) == 1


def test_what_is_refused_on_purpose_is_refused():
    salts = Newer()
    with pytest.raises(RuntimeError, match="ours"):
        salts.replaced(_before, (RuntimeError,))(1)
    assert (salts.called, patches.troubles()) == ([], {})
