"""Every way in which a state run starts."""

import pytest

from tests.support.minion import by_id

BOTH = ("install", "salt-common", "salt-minion")
DEFERRED = "Deferred to the end of the run"
SLS = {
    "first": {"note.that": []},
    "own": {"pkg.latest": [{"name": "salt-minion"}]},
    "last": {"note.that": [{"require": [{"pkg": "own"}]}]},
}
LAST = [("note", "first"), ("note", "last"), BOTH]


@pytest.fixture
def written(minion):
    minion.sls("it", SLS)
    minion.sls("top", {"base": {"*": ["it"]}})
    return minion


def high():
    return {
        name: {
            function.split(".")[0]: [function.split(".")[1], {"order": 10000 + number}, *arguments],
            "__sls__": "it",
            "__env__": "base",
        }
        for number, (name, state) in enumerate(SLS.items())
        for function, arguments in state.items()
    }


@pytest.mark.parametrize(
    ("fun", "arguments"),
    [
        ("state.apply", ()),
        ("state.apply", ("it",)),
        ("state.highstate", ()),
        ("state.sls", ("it",)),
        ("state.top", ("top.sls",)),
        ("state.high", (high(),)),
        ("state.template", ("it",)),
    ],
)
def test_a_run(written, fun, arguments):
    if fun == "state.template":
        arguments = (str(written.path / "roots" / "it"),)
    results = by_id(written.call(fun, *arguments))
    assert written.journal("note", "install") == LAST
    assert DEFERRED in results["own"]["comment"]
    assert results["last"]["result"] is True
    assert written.record().phase.value == "committed"


def test_template_str(written):
    text = (written.path / "roots" / "it.sls").read_text()
    results = by_id(written.call("state.template_str", text))
    assert written.journal("note", "install") == LAST
    assert DEFERRED in results["own"]["comment"]


def test_request(written):
    asked = by_id(written.call("state.request", "it"))
    assert "would be deferred" in asked["own"]["comment"]
    assert written.journal("note", "install") == []
    results = by_id(written.call("state.run_request"))
    assert written.journal("note", "install") == LAST
    assert DEFERRED in results["own"]["comment"]


def test_single(written):
    results = by_id(written.call("state.single", "pkg.latest", "salt-minion"))
    assert results["salt-minion"]["result"] is True
    assert results["salt-minion"]["changes"]["salt-minion"] == {"old": "1", "new": "2"}
    assert written.journal("install") == [BOTH]
    assert written.journal()[-1] == ("minion restarts",)


def test_single_with_other_packages(written):
    results = by_id(
        written.call("state.single", "pkg.latest", "own", pkgs=["vim", "salt-minion", "nano"])
    )
    assert written.journal("install") == [("install", "nano", "vim"), BOTH]
    assert set(results["own"]["changes"]) == {"vim", "nano", "salt-minion", "salt-common"}


def test_low(written):
    low = {
        "state": "pkg",
        "fun": "latest",
        "name": "salt-minion",
        "__id__": "own",
        "__sls__": "it",
        "order": 1,
    }
    result = written.call("state.low", low)
    assert result["result"] is True
    assert result["changes"]["salt-minion"] == {"old": "1", "new": "2"}
    assert DEFERRED in result["comment"]


def test_sls_id(minion):
    minion.sls("it", {"own": {"pkg.latest": [{"names": ["vim", "salt-minion", "nano"]}]}})
    results = minion.call("state.sls_id", "own", "it")
    assert minion.journal("install") == [("install", "vim"), ("install", "nano"), BOTH]
    assert sum(DEFERRED in result["comment"] for result in results.values()) == 1
    assert minion.context["retcode"] == 0


def test_sls_id_tells_of_a_failure_at_the_end(minion):
    minion.database.update(broken={"salt-minion": "it broke"})
    minion.sls("it", {"own": {"pkg.latest": [{"name": "salt-minion"}]}})
    (result,) = minion.call("state.sls_id", "own", "it").values()
    assert result["result"] is False
    assert minion.context["retcode"] == 2


def test_the_return_code_tells_of_a_failure_at_the_end(minion):
    minion.database.update(broken={"salt-minion": "it broke"})
    results = minion.apply(SLS)
    assert results["own"]["result"] is False
    assert minion.context["retcode"] == 2


def test_a_run_that_does_not_compile(minion):
    minion.sls("it", {"own": {"pkg.latest": [{"require": [{"pkg": "nowhere"}]}]}, "x": 3})
    assert isinstance(minion.call("state.apply", "it"), list)
    assert minion.record() is None


@pytest.mark.parametrize(
    ("fun", "arguments", "entry"),
    [
        ("pkg.install", ("salt-minion",), BOTH),
        ("pkg.install", ("plugin",), ("install", "plugin", "salt-common", "salt-minion")),
        ("pkg.remove", ("salt-minion",), ("remove", "salt-minion")),
        ("pkg.purge", ("salt-minion",), ("purge", "salt-minion")),
        (
            "pkg.upgrade",
            (),
            ("upgrade", "nano", "plugin", "salt-common", "salt-minion", "vim"),
        ),
        (
            "pkg.group_install",
            ("vim+salt-minion",),
            ("install", "salt-common", "salt-minion", "vim"),
        ),
        ("probe.update", ("salt-minion",), BOTH),
    ],
)
def test_an_execution_function_follows_the_same_protocol(minion, fun, arguments, entry):
    minion.call(fun, *arguments)
    words = [found[0] for found in minion.database.journal()]
    did = minion.database.journal().index(entry)
    # Between the inhibitor and the restart.
    assert words.index("inhibit") < did < len(words) - 1
    assert minion.record().phase.value == "committed"


def test_an_execution_function_on_another_package_is_left_alone(minion):
    minion.call("pkg.install", "vim")
    assert minion.database.journal() == [("install", "vim")]
    assert minion.record() is None


def test_an_execution_function_with_a_failure(minion):
    minion.database.update(broken={"salt-minion": "it broke"})
    with pytest.raises(Exception, match="it broke"):
        minion.call("pkg.install", "salt-minion")
    assert minion.record().phase.value == "failed"
    assert ("minion restarts",) not in minion.journal()
