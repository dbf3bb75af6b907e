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
