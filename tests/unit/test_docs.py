"""The documentation and the code say the same."""

import ast
import dataclasses
import functools
import importlib.util
import pathlib
import re
import shlex

import pytest
import yaml

from devtools.__main__ import parser
from saltext_safeupdate import __version__
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.core.transactional import call as transactional_call
from saltext_safeupdate.fleet.inventory import PLAIN, SENSELESS, UNSUPPORTED
from saltext_safeupdate.fleet.rollout import Step
from tests.support import documents
from tests.unit import test_layers

REPO = pathlib.Path(__file__).parents[2]
PAGE = (REPO / "docs" / "ref" / "configuration" / "index.md").read_text(encoding="utf-8")
FIELDS = {field.name: field.default for field in dataclasses.fields(Settings)}


def _sections():
    """Return the text of each section of the configuration page, by its key."""
    parts = re.split(r"^## `([a-z_]+)`$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_key_has_a_section_in_the_order_of_the_dataclass():
    assert list(_sections()) == list(FIELDS)


@pytest.mark.parametrize("key", FIELDS)
def test_the_default_and_its_unit_are_told(key):
    default = FIELDS[key]
    (told,) = re.findall(r"^Default: (.*)$", _sections()[key], flags=re.MULTILINE)
    if isinstance(default, tuple):
        assert (default, told) == ((), "none")
    elif default == "":
        assert told == "none"
    elif isinstance(default, float):
        assert told == f"`{default:g}` second{'' if default == 1 else 's'}"
    else:
        assert told == f"`{default}`"


@pytest.mark.parametrize("key", FIELDS)
def test_every_section_can_be_linked_to_and_explains(key):
    assert f"({key})=\n## `{key}`" in PAGE
    explained = re.sub(r"Default: .*|\(\w+\)=", "", _sections()[key]).strip()
    assert len(explained) > 40


def _make_ref(name="make_ref"):
    spec = importlib.util.spec_from_file_location(name, REPO / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_a_reference_page_for_every_file_of_a_loader(tmp_path):
    make_ref = _make_ref()
    gone = tmp_path / "modules" / "all" / "gone.rst"
    gone.parent.mkdir(parents=True)
    gone.write_text("")
    make_ref.write(tmp_path)
    for kind in make_ref.KINDS:
        names = {path.stem for path in (make_ref.SOURCE / kind).glob("*.py")} - {"__init__"}
        pages = {path.stem for path in (tmp_path / kind / "all").glob("*.rst")} - {"index"}
        assert names == pages
    assert "automodule:: saltext_safeupdate.modules.safeupdate" in (
        tmp_path / "modules" / "all" / "safeupdate.rst"
    ).read_text(encoding="utf-8")


def test_every_kind_of_reference_is_in_the_index():
    index = (REPO / "docs" / "index.md").read_text(encoding="utf-8")
    for kind in _make_ref().KINDS:
        assert f"ref/{kind}/all/index" in index


def test_every_change_is_of_a_known_type():
    pyproject = (REPO / "pyproject.toml").read_text(encoding="utf-8")
    types = set(re.findall(r'^directory = "(\w+)"$', pyproject, flags=re.MULTILINE)) - {"changelog"}
    fragments = list((REPO / "changelog").glob("*.md"))
    assert fragments or (REPO / "CHANGELOG.md").exists()
    for path in fragments:
        assert path.suffixes[-2].lstrip(".") in types, path
        assert path.read_text(encoding="utf-8").strip()


def test_the_changelog_has_every_change_below_its_kind(tmp_path):
    make_changelog = _make_ref("make_changelog")
    make_changelog.write(tmp_path)
    page = (tmp_path / "changelog.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^### (.+)\n((?:(?!^### ).*\n?)*)", page, flags=re.MULTILINE))
    for path in (REPO / "changelog").glob("*.md"):
        title = make_changelog.kinds()[path.suffixes[-2].lstrip(".")]
        assert path.read_text(encoding="utf-8").split("\n")[0] in found[title], path


DECISIONS = sorted((REPO / "docs" / "adr").glob("[0-9]*.md"))


def test_decisions_are_numbered_without_a_gap_or_a_double():
    assert [path.name[:4] for path in DECISIONS] == [
        f"{number:04}" for number in range(1, len(DECISIONS) + 1)
    ]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_every_decision_has_a_head_and_the_same_parts(path):
    text = path.read_text(encoding="utf-8")
    title = rf"# {int(path.name[:4])}\. .+\n\n"
    head = title + r"- Status: (.+(?:\n  .+)*)\n- Date: \d{4}-\d\d-\d\d\n\n##"
    (status,) = re.findall(head, text[: text.index("##") + 2])
    assert status.startswith(("accepted", "superseded by "))
    for linked in re.findall(r"\]\((.+?)\)", status):
        assert (path.parent / linked).exists()
    assert re.findall("^## (.*)$", text, flags=re.MULTILINE) == [
        "Context",
        "Decision",
        "Consequence",
    ]


def test_the_index_of_the_decisions_has_each_of_them_in_order():
    index = (REPO / "docs" / "adr" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| {doc}`(.+?)` \| (\w+).* \| (.+?) \|$", index, re.MULTILINE)
    assert rows == [
        (str(int(path.name[:4])), path.stem, *_head(path.read_text(encoding="utf-8")))
        for path in DECISIONS
    ]


def _head(text):
    """Return the first word of the status, and the date."""
    return re.findall(r"^- (?:Status|Date): ([\w-]+)", text, flags=re.MULTILINE)


# -- contributing ----------------------------------------------------------------------

PACKAGE = REPO / "src" / "saltext_safeupdate"
CONTRIBUTING = REPO / "docs" / "contributing.md"
# The table of the promises is beside it.
NAMING = [CONTRIBUTING, *sorted((REPO / "docs" / "contributing").glob("*.md"))]
WRITTEN = [
    REPO / "README.md",
    *sorted((REPO / "benchmarks").glob("*.md")),
    *sorted((REPO / "docs").rglob("*.md")),
]
SUFFIXES = (".py", ".md", ".cfg", ".toml", ".sh", ".sls")
# What the page quotes and is not ours, or is no name.
NOT_OURS = {
    "$SAFEUPDATE_CACHE",
    "+name.type.md",
    "<!-- not run: REASON -->",
    "<!-- output: TEST -->",
    "<!-- run: TEST -->",
    "CLI Example:",
    "clock=",
    "except Exception",
    "python3",
    "return False",
    "run=",
    "run=command.run",
    "salt.loader",
    "salt.master",
    "salt.minion",
    "salt.state",
    "sh",
    "store=",
    "test_",
    "transactional-update",
    "~/.cache/saltext-safeupdate",
}


def _name(path):
    return str(path.relative_to(REPO))


def _quoted(text):
    """Return what stands in backticks, but for the examples and the links."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"{\w+}`[^`]*`", "", text)
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", text)]


def _commands(text):
    """Return every call of ``./dev`` in the text, as its arguments."""
    lines = [line for line in text.splitlines() if line.startswith("./dev ")]
    quoted = [found for found in _quoted(text) if found.startswith("./dev ")]
    return [shlex.split(line, comments=True)[1:] for line in lines + quoted]


@functools.cache
def _defined(path):
    """Return the names of the functions, classes and values of a file, those of classes too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@functools.cache
def _everything_defined():
    files = [*PACKAGE.rglob("*.py"), *(REPO / "devtools").rglob("*.py")]
    files += (REPO / "tests" / "support").glob("*.py")
    return set().union(*map(_defined, files))


def _is_there(path):
    """Tell whether a path of the repository or of the package exists; ``*`` stands for some."""
    return any(next(base.glob(path.rstrip("/")), None) for base in (REPO, PACKAGE))


def _exists(quoted):
    """Tell whether what is quoted exists; None if it is none of our names."""
    if quoted.startswith("./dev"):
        # The commands have a test of their own.
        return True
    if "::" in quoted:
        path, *names = re.sub(r"\[.*", "", quoted).split("::")
        return _is_there(path) and set(names) <= _defined(REPO / path)
    if re.fullmatch(r"[\w.*-][\w.*/-]*", quoted) and ("/" in quoted or quoted.endswith(SUFFIXES)):
        return _is_there(quoted)
    if found := re.fullmatch(r"safeupdate:(\w+)", quoted):
        return found[1] in FIELDS
    if found := re.fullmatch(r"safeupdate\.(\w+)(\(\))?", quoted):
        shells = [PACKAGE / kind / "safeupdate.py" for kind in ("modules", "runners", "states")]
        return any(found[1] in _defined(path) for path in shells)
    if re.fullmatch(r"(core|saltext_safeupdate|devtools|tests)(\.\w+)+", quoted):
        path = quoted.removeprefix("saltext_safeupdate.").replace(".", "/")
        above, _, name = path.rpartition("/")
        files = [base / f"{above}.py" for base in (REPO, PACKAGE)]
        inside = any(file.exists() and name in _defined(file) for file in files)
        return inside or _is_there(path) or _is_there(f"{path}.py")
    if quoted.isidentifier() and quoted in _everything_defined():
        return True
    return None


@pytest.mark.parametrize("page", NAMING, ids=_name)
def test_every_name_in_the_pages_for_contributors_exists(page):
    quoted = _quoted(page.read_text(encoding="utf-8"))
    assert quoted
    assert [name for name in quoted if _exists(name) is False] == []


def test_what_contributing_quotes_is_ours_or_known_to_be_not():
    quoted = set(_quoted(CONTRIBUTING.read_text(encoding="utf-8")))
    assert {name for name in quoted if _exists(name) is None} <= NOT_OURS


def test_what_is_said_to_be_in_a_file_is_there():
    text = CONTRIBUTING.read_text(encoding="utf-8")
    found = re.findall(r"((?:`\w+`(?:,| and)?\s+)+)(?:\w+ )?in `([\w/]+\.py)`", text)
    assert len(found) > 5
    for names, path in found:
        (file,) = (base / path for base in (REPO, PACKAGE) if (base / path).exists())
        assert set(re.findall(r"`(\w+)`", names)) <= _defined(file), path


def test_the_check_sees_what_does_not_exist():
    """What is not there is seen in each of the forms."""
    for there in (
        "core/record/",
        "tests/unit/test_docs.py",
        "tests/unit/test_docs.py::test_the_check_sees_what_does_not_exist",
        "tests/lab/test_*.py",
        "safeupdate:jobs_timeout",
        "safeupdate.check",
        "core.record.phase.Phase",
        "devtools.testrun",
        "Phase",
    ):
        assert _exists(there) is True, there
    for gone in (
        "core/nothing/",
        "tests/unit/test_nothing.py",
        "tests/unit/test_docs.py::test_nothing",
        "tests/unit/test_nothing.py::test_nothing",
        "tests/lab/nothing_*.py",
        "safeupdate:nothing",
        "safeupdate.nothing",
        "core.record.phase.Nothing",
        "devtools.nothing",
    ):
        assert _exists(gone) is False, gone
    for foreign in ("Nothing", "salt.minion", "a sentence", "/etc/salt/minion"):
        assert _exists(foreign) is None, foreign


@pytest.mark.parametrize("page", WRITTEN, ids=_name)
def test_every_dev_command_can_be_called(page):
    for arguments in _commands(page.read_text(encoding="utf-8")):
        options, rest = parser().parse_known_args(arguments)
        assert options.command in ("test", "soak") or not rest, arguments
        for path in (found for found in rest if "/" in found):
            assert _exists(path), arguments


def test_every_dev_command_is_told():
    told = {arguments[0] for arguments in _commands(CONTRIBUTING.read_text(encoding="utf-8"))}
    assert told == set(parser()._subparsers._group_actions[0].choices)


def _rows(heads):
    """Return the rows of the table below *heads*, each as its cells."""
    page = CONTRIBUTING.read_text(encoding="utf-8")
    table = page.partition(f"| {heads} |\n")[2].partition("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[1:]
    ]


# Directories that have rooms, and modules beside them.
SEVERAL = (PACKAGE, PACKAGE / "admin", PACKAGE / "core")


def _rooms():
    """Return the directories of the source that hold code, and those of the core."""
    found = [path for base in SEVERAL for path in base.glob("*/")]
    return {f"{path.relative_to(PACKAGE)}/" for path in found if (path / "__init__.py").exists()}


def test_the_table_of_the_rooms_has_every_room_and_no_other():
    told = [name for row in _rows("Room | What it holds | May import") for name in _quoted(row[0])]
    assert sorted(told) == sorted(_rooms())


def test_the_modules_beside_the_rooms_are_told():
    told = {name for row in _rows("Module | What it does | May import") for name in _quoted(row[0])}
    files = {path for base in SEVERAL for path in base.glob("[!_]*.py")}
    assert told == {str(path.relative_to(PACKAGE)) for path in files}


def test_the_drawings_have_every_room_and_every_phase():
    page = (REPO / "docs" / "contributing" / "drawings.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"\w+", "".join(re.findall(r"^```$.*?^```$", page, re.M | re.S))))
    assert {room.rstrip("/").rpartition("/")[2] for room in _rooms()} <= drawn
    assert {phase.value for phase in Phase} - {"failed"} <= drawn


# -- the glossary ----------------------------------------------------------------------

GLOSSARY = (REPO / "docs" / "ref" / "glossary.md").read_text(encoding="utf-8")


def _terms():
    body = GLOSSARY.partition("```{glossary}\n")[2].partition("\n```")[0]
    return re.findall(r"^(\S.*)\n  \S", body, flags=re.MULTILINE)


def test_the_glossary_is_in_order_and_has_no_double():
    terms = [term.casefold().replace("_", " ") for term in _terms()]
    assert terms == sorted(set(terms))
    assert len(terms) > 50


@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.value)
def test_every_phase_is_explained(phase):
    explained = re.search(rf"^{phase.value}\n  (.*)", GLOSSARY, flags=re.MULTILINE)
    assert "hase" in explained[1]
    page = (REPO / "docs/topics/explanation/how-it-works.md").read_text(encoding="utf-8")
    assert f"| `{phase.value}` |" in page


# Of a job and of a minion, "held" is explained with the verb.
FLEET = [*(step.value for step in Step if step is not Step.HELD), PLAIN, SENSELESS, UNSUPPORTED]


@pytest.mark.parametrize(
    "word", [*FLEET, "rollout", "group", "canary", "wave", "away", "busy", "silent"]
)
def test_every_word_for_a_minion_of_a_fleet_is_explained(word):
    assert word in _terms()


@pytest.mark.parametrize("page", WRITTEN, ids=_name)
def test_every_term_that_is_linked_is_in_the_glossary(page):
    linked = re.findall(r"{term}`([^`]+)`", page.read_text(encoding="utf-8"))
    assert set(linked) <= set(_terms())


def test_every_test_that_is_named_as_a_guard_against_a_trap_exists():
    page = (REPO / "docs/topics/explanation/failures.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:unit|functional|integration|lab)/[\w/]+\.py)`", page)
    assert named
    assert [path for path in named if not (REPO / "tests" / path).exists()] == []


def test_the_reasons_that_troubleshooting_explains_are_given():
    page = (REPO / "docs/topics/howto/troubleshoot.md").read_text(encoding="utf-8")
    failed = page.partition("## The update is `failed`")[2].partition("\n## ")[0]
    explained = re.findall(r"\*([^*]+)\*", failed)
    texts = [
        node.value
        for path in (PACKAGE / "core" / "supervisor").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert len(explained) == 4
    assert [reason for reason in explained if not any(reason in text for text in texts)] == []


def _key(name):
    """Return what test_layers calls a room or module of the tables."""
    return name.rstrip("/").removesuffix(".py")


def test_the_tables_say_what_the_rules_of_the_imports_say():
    told = {}
    for heads in ("Room | What it holds | May import", "Module | What it does | May import"):
        for names, _, may in _rows(heads):
            allowed = {_key(name) for name in _quoted(may)}
            if "the rooms of the core" in may:
                allowed |= test_layers.CORE - test_layers.BASE
            told |= {_key(name): allowed for name in _quoted(names)}
    rules = {room: may - test_layers.BASE for room, may in test_layers.MAY_IMPORT.items()}
    shells = rules.pop("shells")
    rules |= dict.fromkeys(test_layers.SHELLS, shells)
    assert told == {room: may for room, may in rules.items() if room in told}
    assert {room for room in rules if room and room not in told} <= {"fleet"}


# -- commands and outputs --------------------------------------------------------------

BLOCKS = [block for page in documents.pages() for block in documents.blocks(page)]


def _place(block):
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language in documents.COMMANDS], ids=_place
)
def test_every_command_is_run_by_a_test_or_says_why_not(block):
    assert block.mark in ("run", "not run"), "write '<!-- run: TEST -->' above it"
    if block.mark == "not run":
        assert len(block.said) > 20
        return
    text = ""
    for named in block.said.split(", "):
        file, _, name = named.partition("::")
        assert (REPO / file).is_file(), block.said
        assert not name or name in _defined(REPO / file)
        if file in (TYPED, FROM_PIP):
            return
        text += (REPO / file).read_text(encoding="utf-8")
    # Its test calls the same functions of ours.
    ours = re.findall(r"(?<![-\w])(?:safeupdate|transactional_update)\.\w+", block.text)
    assert [function for function in ours if function not in text] == []


# They type the commands of pages as they stand.
TYPED = "tests/lab/test_documents.py"
FROM_PIP = "tests/lab/test_from_pip.py"
# Compares pages with what the real functions print of a simulated fleet.
SIMULATED = ("tests/unit/fleet/test_howto.py", "tests/functional/master/test_pages.py")


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language == "text"], ids=_place
)
def test_every_output_was_printed(block):
    assert block.mark in ("output", "no output"), "write '<!-- output: TEST -->' above it"
    if block.mark == "output":
        assert block.said.partition("::")[0] in (TYPED, *SIMULATED)


def test_an_output_has_one_shape_however_fast_the_machine_is():
    """Salt tells a total below a second in milliseconds."""
    fast, slow = (f"Total run time: {time}" for time in ("485.178 ms", "  2.259 s"))
    assert documents.shape(fast) == documents.shape(slow)


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.said.partition("::")[0] == TYPED], ids=_place
)
def test_what_is_typed_is_on_a_page_that_is_followed(block):
    text = (REPO / TYPED).read_text(encoding="utf-8")
    assert f'"{block.page}"' in text
    assert block.mark in ("run", "output")


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language in ("sls", "yaml")], ids=_place
)
def test_every_example_is_yaml(block):
    """Templates are taken for what they come to: a text."""
    assert yaml.safe_load(re.sub(r"{{.*?}}", "text", block.text))


def test_every_setting_of_transactions_is_in_its_table():
    page = (REPO / "docs/ref/configuration/others.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+)` \|", page.partition("## Transactional")[2], re.MULTILINE)
    assert sorted(told) == sorted(transactional_call.SETTINGS)


def test_the_wheel_that_is_installed_is_of_this_version():
    named = {
        version
        for block in BLOCKS
        for version in re.findall(r"saltext_safeupdate-([\d.]+)-py3", block.text)
    }
    assert named == {__version__}


# -- quoted outputs --------------------------------------------------------------------


def test_the_tutorial_quotes_what_the_result_says():
    page = (REPO / "docs/topics/tutorial/first-update.md").read_text(encoding="utf-8")
    texts = {
        node.value.replace("{names}", "salt-common, salt-minion")
        for path in (PACKAGE / "ordering").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(("{names} ", "Moved ", "Deferred "))
        and "{names}" in node.value
    }
    assert [text for text in texts if text in " ".join(page.split())]


def test_the_packages_describe_restarts_in_both_ways():
    """They are handed over, or wait for jobs, and both packages say so in the same words."""
    control = (REPO / "packaging/debian/control").read_text(encoding="utf-8")
    spec = (REPO / "packaging/rpm/saltext-safeupdate.spec").read_text(encoding="utf-8")
    deb = control.partition("\nDescription:")[2].partition("\n")[2].replace("\n .\n", "\n")
    rpm = spec.partition("\n%description\n")[2].partition("\n%prep\n")[0]
    assert deb.split() == rpm.split()
    told = " ".join(deb.split())
    assert "the next minion starts while the earlier one completes its jobs, or the" in told


def test_a_rollout_in_an_example_has_a_name_as_rollouts_get_it():
    """See ``plan_id`` in ``master/planning.py``."""
    page = (PACKAGE / "runners" / "safeupdate.py").read_text(encoding="utf-8")
    named = set(re.findall(r"\b2026\d{4}[-T]\w+(?:-\w+)*", page))
    assert named
    assert [name for name in named if not re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", name)] == []
