"""The table of functions, and that nothing else in the source says what a function is."""

import ast
import inspect
import pathlib
import re

import pytest
import salt.modules.grains
import salt.modules.minion
import salt.modules.ps
import salt.modules.saltutil
import salt.modules.state
import salt.modules.sysmod
import salt.modules.system
import salt.modules.systemd_service
import salt.modules.test

import saltext_safeupdate
from saltext_safeupdate.core.jobs import functions
from saltext_safeupdate.core.jobs.functions import Kind
from saltext_safeupdate.modules import rebootmgr, safeupdate, transactional_update

ROOT = pathlib.Path(saltext_safeupdate.__file__).parent
MODULES = {
    "grains": salt.modules.grains,
    "safeupdate": safeupdate,
    "saltutil": salt.modules.saltutil,
    "state": salt.modules.state,
    "sys": salt.modules.sysmod,
    "test": salt.modules.test,
}
# Those that are only kept from coming later.
OF_THE_MOMENT = {
    "minion": salt.modules.minion,
    "ps": salt.modules.ps,
    "rebootmgr": rebootmgr,
    "service": salt.modules.systemd_service,
    "system": salt.modules.system,
    "transactional_update": transactional_update,
}
FUNCTION = re.compile(rf"({'|'.join(MODULES)})\.([a-z_]+|\*)")
# They act on jobs, and must ask the table what a job's function is.
DECIDING = [
    "core/jobs/ledger.py",
    "master/missed_jobs.py",
    "core/jobs/recovery.py",
    "core/jobs/ticker.py",
    "core/jobs/update_wait.py",
    "executors/safeupdate.py",
    "master/redelivery.py",
    "this_host.py",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "minion").glob("*.py"))),
]
# Tables of functions that say something else than what a job is to us.
OTHER_TABLES = {
    "core/transactional/delegate.py": "which function of transactional_update stands for which",
    "ordering": "which execution functions get a handler put in front of them",
}


def _own_functions():
    return [
        f"safeupdate.{name}"
        for name, found in vars(safeupdate).items()
        if inspect.isfunction(found)
        and found.__module__ == safeupdate.__name__
        and not name.startswith("_")
    ]


@pytest.mark.parametrize("fun", _own_functions())
def test_each_function_of_ours_is_in_the_table(fun):
    assert fun in functions.TABLE


@pytest.mark.parametrize("name", sorted(functions.TABLE))
def test_what_is_in_the_table_exists(name):
    module, _, function = name.partition(".")
    if function == "*":
        return
    found = {**MODULES, **OF_THE_MOMENT}[module]
    # Salt takes the underscore off that keeps a name from being Python's.
    aliases = getattr(found, "__func_alias__", {})
    assert function in aliases.values() or callable(getattr(found, function, None)), name


@pytest.mark.parametrize(
    ("fun", "kind"),
    [
        ("sys.doc", Kind.LOOKS),
        ("sys.state_schema", Kind.LOOKS),
        ("grains.get", Kind.LOOKS),
        ("grains.setval", Kind.ORDINARY),
        ("cmd.run", Kind.ORDINARY),
        # Names that only begin like one of the table.
        ("safeupdate.status_of", Kind.ORDINARY),
        ("sysctl.get", Kind.ORDINARY),
        ("test.pingpong", Kind.ORDINARY),
        ("sys", Kind.ORDINARY),
        ("sys.*", Kind.LOOKS),
        # Several functions in one job.
        (["test.ping", "sys.doc"], Kind.ORDINARY),
        ("sys.doc,cmd.run", Kind.ORDINARY),
        ("", Kind.ORDINARY),
        (None, Kind.ORDINARY),
    ],
)
def test_a_name_or_a_pattern_of_a_module_counts(fun, kind):
    assert functions.kind(fun) == kind


def test_an_ordinary_job_is_recorded_held_redelivered_and_reported():
    fun = "cmd.run"
    assert functions.is_recorded(fun)
    assert not functions.starts_at_once(fun)
    assert functions.needs_lock(fun)
    assert functions.is_redelivered(fun)
    assert not functions.is_resumable(fun)
    assert not functions.waits_for_update(fun)


@pytest.mark.parametrize(
    "fun",
    ["accepted", "check", "history", "jobs", "report", "revisions", "status"],
)
def test_one_can_always_look_at_an_update(fun):
    fun = f"safeupdate.{fun}"
    assert functions.starts_at_once(fun), "from a master"
    assert not functions.needs_lock(fun), "with salt-call"
    assert not functions.is_recorded(fun)


@pytest.mark.parametrize(
    "fun",
    [
        *(f"saltutil.{each}_all_jobs" for each in ("kill", "term")),
        *("safeupdate.drain", "system.poweroff", "minion.kill", "service.stop"),
        *("system.set_system_time", "ps.kill_pid", "ps.pkill"),
    ],
)
def test_what_is_about_the_moment_never_comes_later(fun):
    """Other jobs run then, or somebody has ended it meanwhile."""
    assert not functions.is_redelivered(fun)
    assert functions.is_redelivered("saltutil.kill_job"), "its job never comes either, by this"


def test_what_a_master_gets_at_once_salt_call_does_too():
    assert [fun for fun in functions.named(Kind.AT_ONCE) if functions.needs_lock(fun)] == []


def _literals(path):
    """Yield each collection of names of functions, and each single name, that the file writes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.Tuple | ast.List | ast.Dict):
            elements = node.keys if isinstance(node, ast.Dict) else node.elts
            names = [name for each in elements if (name := _name(each))]
            if len(names) > 1:
                yield names
        elif id(node) not in documentation and (name := _name(node)):
            yield name


def _name(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if FUNCTION.fullmatch(node.value) else None
    return None


@pytest.mark.parametrize("place", DECIDING)
def test_who_decides_by_a_function_asks_the_table(place):
    assert list(_literals(ROOT / place)) == []


def test_there_is_no_other_table():
    found = {
        str(path.relative_to(ROOT)): names
        for path in sorted(ROOT.rglob("*.py"))
        for names in _literals(path)
        if isinstance(names, list)
    }
    del found["core/jobs/functions.py"]
    other = [
        place
        for place in found
        if not any(place == known or place.startswith(f"{known}/") for known in OTHER_TABLES)
    ]
    assert other == []


def test_the_check_sees_a_table(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text(
        '"""safeupdate.status"""\n'
        'FREE = frozenset(("test.ping", "grains.*", "no.function"))\n'
        'alone = fun == "saltutil.find_job"\n'
        'of = {"state.apply": 1, "state.sls": 2}\n'
    )
    found = list(_literals(path))
    assert ["test.ping", "grains.*"] in found
    assert ["state.apply", "state.sls"] in found
    assert "saltutil.find_job" in found
    assert "safeupdate.status" not in found


@pytest.mark.parametrize(
    ("fun", "arg", "jid"),
    [
        ("saltutil.kill_job", ["20260101"], "20260101"),
        ("saltutil.term_job", [20260101], "20260101"),
        ("saltutil.kill_job", [{"__kwarg__": True, "jid": "20260101"}], "20260101"),
        ("saltutil.kill_job", ["jid=20260101"], "20260101"),
        ("saltutil.term_job", ["jid='20260101'"], "20260101"),
        ("saltutil.kill_job", ["jid="], None),
        ("saltutil.kill_job", [{"__kwarg__": True}], None),
        ("saltutil.kill_job", [["20260101"]], None),
        ("saltutil.kill_job", [], None),
        ("saltutil.kill_job", None, None),
        (["saltutil.kill_job"], [["20260101"]], None),
        ("saltutil.signal_job", ["20260101", 15], "20260101"),
        ("saltutil.signal_job", [20260101, "9"], "20260101"),
        ("saltutil.signal_job", [{"__kwarg__": True, "jid": 20260101, "sig": 15}], "20260101"),
        ("saltutil.signal_job", ["20260101", {"__kwarg__": True, "sig": 9}], "20260101"),
        ("saltutil.signal_job", ["jid=20260101", "sig=9"], "20260101"),
        ("saltutil.signal_job", ["20260101", 1], "20260101"),
        *(("saltutil.signal_job", ["20260101", sig], "20260101") for sig in (4, 11, 12, 30, 64)),
        *(("saltutil.signal_job", ["20260101", sig], None) for sig in (0, 10, 18, 19, 28)),
        ("saltutil.signal_job", ["20260101"], None),
        ("saltutil.kill_all_jobs", [], ""),
        ("saltutil.term_all_jobs", None, ""),
        ("cmd.run", ["20260101"], None),
        (None, ["20260101"], None),
    ],
)
def test_what_ends_another_job(fun, arg, jid):
    assert functions.ends(fun, arg) == jid


@pytest.mark.parametrize(
    ("fun", "arg", "jids"),
    [
        ("saltutil.kill_job", ["1"], {"1"}),
        ("saltutil.kill_all_jobs", [], {""}),
        ("state.soft_kill", ["1", "a state"], {"1"}),
        ("safeupdate.forget", [{"__kwarg__": True, "jid": 1}], {"1"}),
        ("safeupdate.forget", [], set()),
        (["test.ping", "saltutil.kill_job", "saltutil.term_job"], [[], ["1"], [2]], {"1", "2"}),
        (["test.ping", "saltutil.kill_all_jobs"], [[], []], {""}),
        (["cmd.run"], [["1"]], set()),
        ("test.ping", None, set()),
        ([["saltutil.kill_job"]], [["1"]], set()),
    ],
)
def test_what_gives_a_job_up_that_a_minion_does_not_have_yet(fun, arg, jids):
    assert functions.gives_up(fun, arg) == jids
