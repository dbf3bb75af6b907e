"""What Salt's loaders find, on the Salt that runs the tests."""

import importlib
import inspect
import pathlib
import pickle

import pytest
import salt.config
import salt.loader
import salt.payload
import salt.template
import salt.utils.args

import saltext_safeupdate

ROOT = pathlib.Path(saltext_safeupdate.__file__).parent
# Rooms that no loader looks into.
ROOMS = ("admin", "core", "file_roots", "fleet", "master", "minion", "ordering", "stand_ins")
REPO = pathlib.Path(__file__).parents[2]

# Files that a loader finds. A new one is added here.
FOUND = {
    "beacons": {"safeupdate", "transactional_update"},
    "engines": {"safeupdate", "safeupdate_redeliver"},
    "executors": {"safeupdate", "transactional_update"},
    "grains": {"safeupdate"},
    "modules": {"rebootmgr", "safeupdate", "transactional_update"},
    "output": {"safeupdate"},
    "runners": {"safeupdate"},
    "states": {"safeupdate", "safeupdate_builds", "transactional_update"},
}

# Functions that loading a file gives. transactional_update and rebootmgr have their own tests:
# they are there only where their programs are.
SURFACE = {
    "beacons": {"safeupdate": {"beacon", "validate"}},
    "executors": {"safeupdate": {"allow_missing_func", "execute"}},
    "grains": {"safeupdate": {"paths", "safeupdate"}},
    "modules": {
        "safeupdate": {
            "accepted",
            "avail",
            "cancel",
            "check",
            "drain",
            "forget",
            "forget_slot",
            "history",
            "jobs",
            "plan",
            "prefetch",
            "report",
            "request",
            "restart",
            "resume",
            "revisions",
            "rollback",
            "stage",
            "status",
            "undrain",
            "unquarantine",
            "update",
            "wait",
            "withdraw",
        }
    },
    "output": {"safeupdate": {"output"}},
    "runners": {
        "safeupdate": {
            "abort",
            "allow",
            "avail",
            "check",
            "drain",
            "forget",
            "master_version",
            "metrics",
            "onboard",
            "pause",
            "plan",
            "policy",
            "redeliver",
            "report",
            "resume",
            "retry",
            "rollout",
            "setup",
            "status",
            "undrain",
            "update_master",
            "versions",
        }
    },
    "states": {
        "safeupdate": {
            "disabled",
            "enabled",
            "master_enabled",
            "mod_watch",
            "rebooted",
            "restarted",
            "updated",
        },
        "safeupdate_builds": {"described"},
    },
}


def _files(kind):
    return {path.stem for path in (ROOT / kind).glob("*.py")} - {"__init__"}


def _module(kind, name):
    return importlib.import_module(f"saltext_safeupdate.{kind}.{name}")


def _public(module):
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and value.__module__ == module.__name__
    }


ALL = [(kind, name) for kind, names in FOUND.items() for name in sorted(names)]
FUNCTIONS = [
    pytest.param(kind, name, function, id=f"{kind}.{name}.{function}")
    for kind, name in ALL
    for function in sorted(_public(_module(kind, name)))
]


@pytest.fixture
def opts(tmp_path):
    return {
        **salt.config.DEFAULT_MINION_OPTS,
        "root_dir": str(tmp_path),
        "cachedir": str(tmp_path / "cache"),
        "extension_modules": str(tmp_path / "extmods"),
        "safeupdate": {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")},
        "grains": {},
        "id": "minion",
    }


@pytest.fixture
def loader(opts):
    functions = {"safeupdate.status": lambda: None, "event.send": lambda: None}
    make = {
        "beacons": lambda: salt.loader.beacons(opts, functions),
        "engines": lambda: salt.loader.engines(opts, functions, {}, {}),
        "executors": lambda: salt.loader.executors(opts, functions),
        "grains": lambda: salt.loader.grain_funcs(opts),
        "modules": lambda: salt.loader.minion_mods(opts),
        # Below its names without the function, which is always the same.
        "output": lambda: salt.loader.outputters(opts)._dict,
        "runners": lambda: salt.loader.runner(opts, utils={}, context={}),
        "states": lambda: salt.loader.states(opts, functions, {}, {}),
    }
    return lambda kind: make[kind]()


def test_every_directory_of_a_loader_is_known():
    kinds = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and path.name not in (*ROOMS, "__pycache__")
    }
    assert kinds == set(FOUND)


@pytest.mark.parametrize("kind", sorted(FOUND))
def test_the_files_are_the_expected_ones(kind):
    assert _files(kind) == FOUND[kind]


@pytest.mark.parametrize("kind", sorted(FOUND))
def test_salt_finds_them(loader, kind):
    mapping = loader(kind).file_mapping
    found = {name for name, entry in mapping.items() if str(entry[0]).startswith(f"{ROOT}/")}
    assert found == FOUND[kind]


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in SURFACE.items() for name in names]
)
def test_salt_loads_these_functions(loader, kind, name):
    loaded = loader(kind)
    wanted = SURFACE[kind][name]
    assert f"{name}.{next(iter(wanted))}" in loaded
    functions = {full.partition(".")[2] for full in loaded._dict if full.partition(".")[0] == name}
    assert functions == wanted
    assert set(_public(_module(kind, name))) - {"__virtual__"} == wanted


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_file_says_what_it_is_for(kind, name):
    module = _module(kind, name)
    assert inspect.getdoc(module)
    if kind != "grains":
        assert module.__virtualname__ == name


SHOWS = {
    "modules": "CLI Example:",
    "runners": "salt-run",
    "states": ".. code-block:: yaml",
}


@pytest.mark.parametrize(("kind", "name", "function"), FUNCTIONS)
def test_every_function_has_an_example(kind, name, function):
    text = inspect.getdoc(getattr(_module(kind, name), function))
    assert text
    if kind in SHOWS and not function.startswith("mod_"):
        assert SHOWS[kind] in text
    if kind == "modules":
        assert f"{name}.{function.rstrip('_')}" in text


@pytest.mark.parametrize("kind", ["beacons", "engines", "executors"])
def test_what_is_configured_shows_its_configuration(kind):
    for name in FOUND[kind]:
        assert ".. code-block:: yaml" in inspect.getdoc(_module(kind, name)), name


@pytest.mark.parametrize(("kind", "name", "function"), FUNCTIONS)
def test_every_signature_can_be_sent_to_another_process(kind, name, function):
    spec = salt.utils.args.get_function_argspec(getattr(_module(kind, name), function))
    plain = {key: getattr(spec, key) for key in ("args", "varargs", "keywords", "defaults")}
    assert pickle.loads(pickle.dumps(plain)) == plain
    # What sys.argspec returns goes to the master.
    assert salt.payload.loads(salt.payload.dumps(plain))["args"] == list(plain["args"])


# Those of the master, in states/orch, are run by tests with a real one.
SLS = [
    path
    for path in sorted((REPO / "states").rglob("*.sls"))
    if not {"orch", "reactor"}.intersection(path.parts)
]


@pytest.mark.parametrize("path", SLS, ids=lambda path: str(path.relative_to(REPO)))
def test_every_sls_renders_and_its_states_exist(path, opts, loader):
    functions = dict.fromkeys(("config.get", "pillar.get"), lambda key, default="": default)
    renderers = salt.loader.render(opts, functions)
    high = salt.template.compile_template(
        str(path), renderers, "jinja|yaml", [], [], saltenv="base", sls=path.parent.name
    )
    states = loader("states")
    called = [
        key if "." in key else f"{key}.{next(arg for arg in body if isinstance(arg, str))}"
        for declaration in high.values()
        for key, body in declaration.items()
    ]
    assert called
    assert [name for name in called if name not in states] == []


def test_there_is_a_sample_sls():
    assert REPO / "states" / "safeupdate" / "init.sls" in SLS
