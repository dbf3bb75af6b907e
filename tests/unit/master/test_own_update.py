"""The update of a master: by the minion beside it, which has to be sure."""

import os

import pytest
import salt

from saltext_safeupdate.core.errors import InputError, SafeUpdateError
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.host.minions import Minion, register
from saltext_safeupdate.master import own_update
from saltext_safeupdate.master.replies import Failed

CODE = os.path.dirname(os.path.dirname(os.path.realpath(salt.__file__)))
BESIDE = {"code": "master-beside", "problem": "It comes along.", "fix": "", "blocking": False}
PLAN = {"findings": [BESIDE], "targets": {"salt-minion": "3008.3"}}
ASKED = {"update": "u1", "phase": "requested", "to": PLAN["targets"], "servers": ["salt-master"]}


class Engine:
    """Asks minions as the engine does; what they answer is in *answers*."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def __call__(self, opts, minions, fun, arg, timeout):
        self.asked.append((list(minions), fun, arg))
        said = self.answers.get(fun.partition(".")[2])
        return {} if said is None else {minions[0]: said}


@pytest.fixture
def registry(tmp_path):
    """Note minions of this host, as they do when they start."""
    (tmp_path / "salt").mkdir()

    def note(name, *, roots=(CODE,), process=None):
        config = tmp_path / f"salt-{name}" / "minion"
        config.parent.mkdir()
        directory = str(tmp_path / "registry")
        register(
            directory,
            Minion(
                config=str(config),
                id=name,
                unit="salt-minion",
                state_dir="/s",
                run_dir="/r",
                process=processes.me() if process is None else process,
                roots=roots,
            ),
        )
        return directory

    note.path = str(tmp_path / "registry")
    return note


def update(engine, registry, version="3008.3", minion=None, keys=("m1", "m2"), **given):
    return own_update.update(
        {}, version, minion, ask=engine, registry=registry, accepted=lambda opts: keys, **given
    )


def test_the_minion_beside_it_is_asked(registry):
    registry("other", roots=("/opt/other",))
    registry("gone", process="1:1")
    engine = Engine(plan=PLAN, update=ASKED)
    found = update(engine, registry("m1"), when="now", allow_downgrade=True)
    assert [(minions, fun) for minions, fun, _ in engine.asked] == [
        (["m1"], "safeupdate.plan"),
        (["m1"], "safeupdate.update"),
    ]
    assert engine.asked[0][2] == {"version": "3008.3", "allow_downgrade": True}
    assert engine.asked[1][2] == {"version": "3008.3", "allow_downgrade": True, "when": "now"}
    assert (found["minion"], found["update"]) == ("m1", "u1")
    assert "salt-call --local safeupdate.status" in found["comment"]


def test_a_test_changes_nothing(registry):
    engine = Engine(plan=PLAN, update=ASKED)
    found = update(engine, registry("m1"), test=True)
    assert [fun for _, fun, _ in engine.asked] == ["safeupdate.plan"]
    assert found == {"minion": "m1", **PLAN}


def test_without_a_minion_it_is_refused(registry):
    engine = Engine(plan=PLAN, update=ASKED)
    registry("other", roots=("/opt/other",))
    with pytest.raises(InputError, match=r"No minion .* Nothing was changed.*'minion'"):
        update(engine, registry.path)
    assert engine.asked == []


def test_of_several_one_has_to_be_named(registry):
    registry("m1")
    place = registry("m2")
    engine = Engine(plan=PLAN, update=ASKED)
    with pytest.raises(InputError, match=r"m1, m2.*Nothing was changed.*'minion'"):
        update(engine, place)
    assert update(engine, place, minion="m2")["minion"] == "m2"


def test_one_whose_key_is_not_accepted_here_is_none_of_this_master(registry):
    engine = Engine(plan=PLAN, update=ASKED)
    with pytest.raises(InputError, match=r"m1.*accepted.*Nothing was changed"):
        update(engine, registry("m1"), keys=("m2",))
    assert engine.asked == []


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (None, "m1 did not answer"),
        (Failed("no such function"), "no such function"),
        ("nonsense", "no plan"),
        ({"findings": []}, "does not include this master"),
        ({"findings": "x"}, "does not include this master"),
        # An API from packages, and a master that somebody has started by hand.
        (
            {"findings": [{**BESIDE, "code": "server-beside"}]},
            "does not include this master",
        ),
        (
            {"findings": [BESIDE, {**BESIDE, "code": "disk-space", "blocking": True}]},
            r"\[disk-space\]",
        ),
    ],
)
def test_what_speaks_against_it_is_told_and_nothing_is_asked(registry, plan, said):
    engine = Engine(plan=plan, update=ASKED)
    with pytest.raises(SafeUpdateError, match=rf"{said}[^$]*Nothing was changed"):
        update(engine, registry("m1"))
    assert [fun for _, fun, _ in engine.asked] == ["safeupdate.plan"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "may have begun"),
        (Failed("the disk is full"), "the disk is full"),
        (7, "may have begun"),
    ],
)
def test_success_is_not_told_without_an_answer(registry, answer, said):
    with pytest.raises(SafeUpdateError, match=said):
        update(Engine(plan=PLAN, update=answer), registry("m1"))


def test_what_is_installed_is_no_update(registry):
    done = {"phase": "idle", "to": {"salt-minion": "3008.3"}, "comment": "It is installed."}
    found = update(
        Engine(plan={**PLAN, "findings": [], "changes": {}}, update=done), registry("m1")
    )
    assert found == {"minion": "m1", **done}
