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
            Patch(salt, "target", ("cls", "opts"), _around),
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


def test_what_takes_more_than_a_replacement_can_pass_on_is_left_as_it_is(salt):
    table = [
        Patch(salt, "handle", ("self", "data"), _around, exact=True),
        Patch(salt, "target", ("cls", "opts"), _around, exact=True),
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
    patches.apply([Patch(salt, "handle", ("self", "data"), _around, exact=True)])
    assert salt().handle(1) == ("ours", ["theirs", ["theirs", "plain 1"]])


def test_what_another_extension_wraps_afterwards_is_still_ours(salt):
    patches.apply([Patch(salt, "handle", ("self", "data"), _around)])
    salt.handle = _hidden(salt.handle)
    assert salt().handle(1) == ["theirs", ("ours", "plain 1")]


def test_if_one_cannot_be_replaced_none_is(salt):
    def fails(original):
        return original.nothing

    table = [Patch(salt, "handle", ("self",), _around), Patch(salt, "target", ("cls",), fails)]
    with pytest.raises(UnknownSaltError, match=r"Minion.target cannot be replaced.*nothing"):
        patches.apply(table)
    assert salt().handle(1) == "plain 1"
