"""
Which publications may go out again, by what a job, its function and the administrator say.

| says no | unless |
| --- | --- |
| the metadata of the job | never |
| ``leave_out``: its function, its publisher, the minion | never |
| our table: it is about the moment | ``include`` names it |
"""

import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.jobs import functions
from saltext_safeupdate.core.jobs.functions import Kind
from saltext_safeupdate.master import choice
from saltext_safeupdate.master.choice import Choice


def wanted(options=None, **load):
    return choice.of(options or {}).is_wanted({"fun": "cmd.run", "user": "alice", **load})


@pytest.mark.parametrize("options", [{}, {"include": None, "leave_out": None}, {"window": 300}])
def test_by_default_nothing_is_chosen(options):
    assert choice.of(options) == Choice()
    assert wanted(options)


@pytest.mark.parametrize("fun", functions.named(Kind.MOMENTARY))
def test_what_is_about_the_moment_is_wanted_only_if_it_is_named(fun):
    assert not wanted(fun=fun)
    assert not wanted(fun=["test.ping", fun]), "not among others either"
    assert wanted({"include": [fun]}, fun=fun)
    assert not wanted({"include": [fun], "leave_out": {"functions": ["*"]}}, fun=fun)


def test_names_may_be_patterns():
    options = {"include": ["service.*"], "leave_out": {"functions": ["cmd.*"], "users": ["a*"]}}
    assert wanted(options, fun="service.restart", user="bob")
    assert not wanted(options, fun="service.restart")
    assert not wanted(options, fun=["service.restart", "cmd.run"], user="bob")
    assert not wanted(options, fun="CMD.run", user="alice")
    assert wanted(options, fun="CMD.run", user="bob"), "names are as Salt has them"


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"redeliver": False}, False),
        ({"redeliver": True}, True),
        # Only a clear no is one: others may use the key for something else.
        ({"redeliver": None}, False),
        ({"redeliver": "no"}, False),
        ({}, True),
        (None, True),
        ("redeliver: False", True),
    ],
    ids=str,
)
def test_a_job_may_say_no(metadata, said):
    assert wanted(metadata=metadata) is said
    assert wanted({"include": ["cmd.run"]}, metadata=metadata) is said


def test_minions_may_be_left_out():
    chosen = choice.of({"leave_out": {"minions": ["db*", "web1"]}})
    assert chosen.may_get(["db1", "web1", "web2"]) == ["web2"]
    assert Choice().may_get({"a"}) == ["a"]


@pytest.mark.parametrize(
    "options",
    [
        {"include": "service.*"},
        {"include": [5]},
        {"leave_out": ["cmd.run"]},
        {"leave_out": {"function": ["cmd.run"]}},
        {"leave_out": {"users": "alice"}},
        {"leave_out": {"minions": {"a": 1}}},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(options):
    with pytest.raises(InputError, match="must be"):
        choice.of(options)
