"""What pre-flight is given, and that all of its findings can appear."""

import ast
import dataclasses
import pathlib
import re

import pytest

from saltext_safeupdate import factory
from saltext_safeupdate.admin.updates import circumstances, updating
from saltext_safeupdate.core.errors import CommandError, SafeUpdateError
from saltext_safeupdate.core.extensions import interpreter
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.prepare import findings as checks
from saltext_safeupdate.core.prepare import resolution, space
from saltext_safeupdate.core.prepare.staging import Staging
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update

from .test_updating import NEW, OLD, made  # noqa: F401 (a fixture)

DOCUMENTED = pathlib.Path(__file__).parents[4] / "docs" / "ref" / "preflight.md"


def _calls(module, name):
    tree = ast.parse(pathlib.Path(module.__file__).read_text(encoding="utf-8"))
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name
    ]


def test_production_code_supplies_everything_that_the_checks_look_at():
    (call,) = _calls(circumstances, "Circumstances")
    fields = {field.name for field in dataclasses.fields(checks.Circumstances)}
    assert {keyword.arg for keyword in call.keywords} == fields


def test_the_documented_findings_are_those_that_can_appear():
    codes = {
        call.args[0].value
        for module in (checks, space, circumstances, updating)
        for name in ("Finding", "Lack", "_noted")
        for call in _calls(module, name)
        if isinstance(call.args[0], ast.Constant)
    }
    assert set(checks.CHECKS) <= codes
    table = re.findall(
        r"^\| `([a-z-]+)` \| (yes|no) \|", DOCUMENTED.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(code for code, _ in table) == sorted(codes)


# -- packages beside Salt ------------------------------------------------------------------


@pytest.fixture
def beside(made, monkeypatch, tmp_path):  # noqa: F811
    """A minion with staged packages of a newer Python, and one package beside its Salt."""
    program = tmp_path / "salt-minion"
    program.write_text("#!/opt/salt/bin/python3.10\n")
    monkeypatch.setattr(made.services, "program", lambda unit: str(program))
    asked = []

    def run(argv, **_):
        asked.append(argv[0])
        path = "/opt/salt/lib/python3.14/site-packages/salt/__init__.py\n"
        return Result(argv=argv, returncode=0, stdout=path, stderr="")

    picky = {
        "name": "picky",
        "version": "1.0",
        "place": "/x",
        "info": "picky-1.0.dist-info",
        "files": [],
        "points": [],
        "requires": "<3.14",
    }
    told = {"python": [3, 10], "paths": [], "purelib": "/x", "distributions": [picky]}
    monkeypatch.setattr(interpreter, "distributions", lambda python, run: told)
    monkeypatch.setattr(circumstances, "run_command", run)
    made.asked = asked
    return made


def _found(host):
    plan = updating.plan(host, {}, NEW)
    return [(each["code"], each["blocking"]) for each in plan["findings"]]


def test_who_does_not_go_with_the_staged_python_stops_the_update(beside):
    updating.stage(beside, {}, NEW)
    assert _found(beside) == [("extension-not-loadable", True)]
    with pytest.raises(
        SafeUpdateError, match=r"\[extension-not-loadable\] picky 1\.0 does not go with"
    ):
        updating.update(beside, {}, NEW)
    assert beside.launched == 0


def test_before_the_packages_are_there_their_python_is_not_known(beside):
    assert _found(beside) == []
    assert beside.asked == []


def test_by_policy_it_is_told_only(beside):
    beside.opts["safeupdate"]["extensions"] = "report"
    updating.stage(beside, {}, NEW)
    assert _found(beside) == [("extension-not-loadable", False)]
    assert updating.update(beside, {}, NEW)["phase"] == "requested"


def test_what_cannot_be_looked_at_is_told_and_stops_nothing(beside, monkeypatch):
    updating.stage(beside, {}, NEW)

    def run(argv, **_):
        raise CommandError(argv, "did not end within 120 s")

    monkeypatch.setattr(circumstances, "run_command", run)
    assert _found(beside) == [("extension-not-loadable", False)]


def test_the_staged_files_are_those_of_the_record(made, tmp_path):  # noqa: F811
    staging = Staging(made.settings.state_dir, made.store, made.manager)
    assert staging.staged_files() == []
    assert staging.stage({"salt-minion": NEW}) == staging.staged_files() != []


# -- another update -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["update", "restart"])
def test_another_update_is_told_also_if_this_one_is_installed(made, kind):  # noqa: F811
    """A restart is waited for."""
    made.store.save(Update(id="u2", kind=kind, phase=Phase.WATCHING, created=1.0))
    found = circumstances.findings(
        made, {}, factory.resolver(made).resolve(resolution.request(OLD))
    )
    told = [(each.code, each.problem) for each in found]
    assert told == [("other-update-running", "Update u2 is watching.")] * (kind == "update")


def test_a_request_replaces_an_update_that_waits(made):  # noqa: F811
    updating.update(made, {}, NEW)
    made.supervisor.close()
    first = made.store.latest().id
    assert ("other-update-running", True) in _found(made)
    made.manager.offers = {"salt-minion": ["3008.4", NEW, OLD]}
    assert updating.update(made, {}, "3008.4")["phase"] == "requested"
    assert made.store.latest().id != first


# -- locks ---------------------------------------------------------------------------------


def test_an_update_is_refused_if_the_locks_cannot_be_used(made, tmp_path):  # noqa: F811
    (tmp_path / "run").write_text("not a directory")
    plan = updating.plan(made, {}, NEW)
    assert [item["code"] for item in plan["findings"] if item["blocking"]] == ["locks"]
    with pytest.raises(SafeUpdateError, match=r"\[locks\].*Nothing was changed"):
        updating.update(made, {}, NEW)
    assert made.store.latest() is None if made.store.exists() else True
    assert made.launched == 0
