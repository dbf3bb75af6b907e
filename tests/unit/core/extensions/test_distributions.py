import os
import shutil
import sys
import sysconfig
import venv
import zipfile
from dataclasses import replace

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError, VerificationError
from saltext_safeupdate.core.extensions import distributions
from saltext_safeupdate.core.host.command import Result, run

MINOR = sys.version_info[1]
NEXT = MINOR + 1
ABI = sysconfig.get_config_var("EXT_SUFFIX")


class Python:
    """A real interpreter with a place of its own for packages."""

    def __init__(self, root):
        venv.create(root, symlinks=True, with_pip=False)
        self.path = str(root / "bin" / "python3")
        self.place = root / "lib" / f"python3.{MINOR}" / "site-packages"

    def add(
        self, name, version="1.0", *, requires="", files=None, point="", record=True, place=None
    ):
        """Install a distribution, as pip would."""
        place = place or self.place
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        if requires:
            metadata += f"Requires-Python: {requires}\n"
        files = {f"{name.replace('-', '_')}/__init__.py": "", **(files or {})}
        files[f"{info}/METADATA"] = metadata
        if point:
            files[f"{info}/entry_points.txt"] = f"[salt.loader]\n{name} = {point}\n"
        if record:
            files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, "../../bin/x"])
        for path, text in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text)
        return place / info / "METADATA"


@pytest.fixture
def old(tmp_path, real_process):
    return Python(tmp_path / "old")


@pytest.fixture
def new(tmp_path, real_process):
    return Python(tmp_path / "new")


@pytest.fixture
def staged(tmp_path):
    return str(tmp_path / "staged")


def _inventory(python, owned=()):
    return distributions.inventory(
        python.path, run, lambda paths: set(paths) - set(map(str, owned))
    )


def _stage(found, staged, python, minor=None, runner=run):
    return distributions.stage(found, staged, program=python, python=minor, run=runner)


def test_what_no_package_owns_is_found_ours_first(old):
    owned = [old.add("salt", "3007.15"), old.add("jinja2")]
    old.add("saltext.zfs", files={"saltext/zfs/__init__.py": ""}, point="saltext.zfs")
    old.add("saltext-safeupdate", "0.1.0", point="saltext_safeupdate")
    old.add("pip")
    found = _inventory(old, owned)
    assert [(each.name, each.version) for each in found] == [
        ("saltext-safeupdate", "0.1.0"),
        ("saltext.zfs", "1.0"),
    ]
    assert (found[0].ours, found[1].ours) == (True, False)
    assert "saltext.zfs" in found[1].modules
    assert found[1].python == MINOR
    assert all("bin" not in file for each in found for file in each.files)


def test_where_salt_itself_is_of_no_package_nothing_is_beside_it(old):
    old.add("salt", "3007.15")
    old.add("saltext-safeupdate")
    assert _inventory(old) == []


def test_what_cannot_be_imported_now_is_not_asked_for_later(old):
    old.add("broken", files={"broken/__init__.py": "import nothing_of_that_name"})
    old.add("deadly", files={"deadly/__init__.py": "import os; os._exit(3)"})
    old.add("good")
    assert {each.name: each.modules for each in _inventory(old)} == {
        "broken": (),
        "deadly": (),
        "good": ("good",),
    }


def test_a_distribution_without_a_list_of_its_files(old):
    info = old.add("listless", record=False).parent
    (info / "top_level.txt").write_text("listless\n_listless\n")
    (old.place / "_listless.py").write_text("")
    (each,) = _inventory(old)
    assert {"listless/__init__.py", "_listless.py", f"{info.name}/METADATA"} <= set(each.files)
    assert set(each.modules) == {"listless", "_listless"}


def test_pure_ones_are_copied_and_can_be_imported_in_the_new_place(old, new, staged):
    old.add("saltext-safeupdate", point="saltext_safeupdate")
    old.add("saltext.zfs", files={"saltext/zfs/__init__.py": "x = 1"}, point="saltext.zfs")
    old.add("saltext.mysql", files={"saltext/mysql/__init__.py": ""}, point="saltext.mysql")
    assert _stage(_inventory(old), staged, old.path) == []
    shutil.rmtree(old.place.parents[2])
    put = distributions.carry(new.path, run, staged)
    assert put == ["saltext-safeupdate", "saltext.mysql", "saltext.zfs"]
    assert {each.name for each in _inventory(new)} == set(put)
    assert (new.place / "saltext" / "zfs" / "__init__.py").read_text() == "x = 1"
    assert not list(new.place.rglob("*.part"))


def test_what_is_there_already_is_left_alone(old, new, staged):
    old.add("mine")
    new.add("mine", "2.0")
    _stage(_inventory(old), staged, old.path)
    assert distributions.carry(new.path, run, staged) == []
    assert [each.version for each in _inventory(new)] == ["2.0"]


def test_where_nothing_was_staged_nothing_is_asked(staged):
    def runner(*_, **__):
        pytest.fail("no program is needed")

    assert distributions.carry("/none", runner, staged) == []


def test_carrying_again_after_a_cut_completes_it(old, new, staged):
    old.add("mine", files={"mine/a.py": "", "mine/b.py": ""})
    _stage(_inventory(old), staged, old.path)
    # Cut before the metadata was there.
    (new.place / "mine").mkdir()
    (new.place / "mine" / "a.py.part").write_text("half")
    distributions.carry(new.path, run, staged)
    assert sorted(path.name for path in (new.place / "mine").iterdir() if path.is_file()) == [
        "__init__.py",
        "a.py",
        "b.py",
    ]


def test_what_cannot_be_imported_there_is_told_with_the_others_in_place(old, new, staged):
    old.add("needy", files={"needy/__init__.py": "import needed"})
    old.add("needed", files={"needed/__init__.py": "x = 1"})
    found = [each for each in _inventory(old) if each.name == "needy"]
    assert found[0].modules == ("needy",)
    old.add("zfine")
    found += [each for each in _inventory(old) if each.name == "zfine"]
    _stage(found, staged, old.path)
    with pytest.raises(VerificationError, match=r"needy 1\.0 .*No module named 'needed'"):
        distributions.carry(new.path, run, staged)
    assert (new.place / "zfine" / "__init__.py").exists()


def test_the_place_of_salt_pip_has_its_successor(old, new, staged, tmp_path):
    for python, name in ((old, "extras-3.1"), (new, "extras-3.2")):
        extras = tmp_path / python.place.parents[2].name / name
        (python.place / "extras.pth").write_text(
            f"import sys; sys.path.insert(0, {str(extras)!r})\n"
        )
    old.add("beside", place=tmp_path / "old" / "extras-3.1")
    old.add("inside")
    _stage(_inventory(old), staged, old.path)
    distributions.carry(new.path, run, staged)
    assert (tmp_path / "new" / "extras-3.2" / "beside" / "__init__.py").exists()
    assert (new.place / "inside" / "__init__.py").exists()


# -- another minor version of Python ----------------------------------------------------


def _wheel(directory, name, minor):
    """Write a wheel with a compiled file for that minor version."""
    directory.mkdir(exist_ok=True)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp3{minor}-cp3{minor}-{platform}"
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": "",
        f"{name}/fast.cpython-3{minor}.so": "compiled",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(directory / f"{name}-1.0-{tag}.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


@pytest.fixture
def index(tmp_path, real_process):
    """Return a runner whose pip finds what is in the directory ``wheels``, and only that."""

    def runner(argv, **kwargs):
        env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}
        return run(argv, **{**kwargs, "env": env})

    return runner


def _compiled(python, name="fastext"):
    python.add(name, files={f"{name}/fast{ABI}": "compiled"})
    (each,) = (each for each in _inventory(python) if each.name == name)
    return each


def test_a_compiled_one_is_fetched_for_the_other_python(old, staged, tmp_path, index):
    _wheel(tmp_path / "wheels", "fastext", NEXT)
    assert _stage([_compiled(old)], staged, sys.executable, NEXT, index) == []
    fetched = os.listdir(os.path.join(staged, f"3.{NEXT}", "fastext", "fastext"))
    assert sorted(fetched) == ["__init__.py", f"fast.cpython-3{NEXT}.so"]
    # What is there now stays at hand, for the way back.
    assert f"fast{ABI}" in os.listdir(os.path.join(staged, f"3.{MINOR}", "fastext", "fastext"))


def test_staging_again_fetches_nothing_again(old, staged, tmp_path, index):
    _wheel(tmp_path / "wheels", "fastext", NEXT)
    each = _compiled(old)
    _stage([each], staged, sys.executable, NEXT, index)
    shutil.rmtree(tmp_path / "wheels")
    assert _stage([each], staged, sys.executable, NEXT, index) == []


def test_what_has_no_build_for_the_other_python_is_a_problem_and_the_rest_is_staged(
    old, staged, tmp_path, index
):
    _wheel(tmp_path / "wheels", "fastext", MINOR)
    old.add("pure")
    found = [_compiled(old), *(each for each in _inventory(old) if each.name == "pure")]
    (problem,) = _stage(found, staged, sys.executable, NEXT, index)
    assert problem.extension == "fastext"
    assert f"no build of it for Python 3.{NEXT} could be had: ERROR" in problem.reason
    assert "fastext" in problem.fix
    assert [each.name for each in distributions.load(staged)] == ["fastext", "pure"]


def test_what_has_no_build_is_not_put_there_and_told(old, new, staged):
    found = [replace(_compiled(old), python=NEXT)]
    (problem,) = _stage(found, staged, old.path, MINOR)
    assert problem.extension == "fastext"
    with pytest.raises(VerificationError, match=r"fastext 1\.0 \(no build"):
        distributions.carry(new.path, run, staged)
    assert not (new.place / "fastext").exists()


def test_without_pip_it_is_a_problem_too(old, staged):
    (problem,) = _stage([_compiled(old)], staged, old.path, NEXT)
    assert "could be had" in problem.reason


@pytest.mark.parametrize(
    ("file", "minor"), [("fast.abi3.so", NEXT), (f"fast{ABI}", MINOR), (f"fast{ABI}", None)]
)
def test_a_compiled_one_that_works_there_as_it_is_is_copied(old, staged, file, minor):
    old.add("fastext", files={f"fastext/{file}": "compiled"})
    assert _stage(_inventory(old), staged, "/no/python", minor) == []
    assert set(os.listdir(staged)) == {f"3.{MINOR}", "extensions.json"}


def test_no_space_is_an_error_that_says_what_is_safe(old, staged, monkeypatch):
    old.add("mine")
    found = _inventory(old)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(SafeUpdateError, match=r"No space left .* Nothing was changed"):
        _stage(found, staged, old.path)


def test_the_list_is_the_last_that_is_written(old, staged, monkeypatch):
    old.add("mine")
    found = _inventory(old)
    monkeypatch.setattr(distributions, "write_atomic", lambda path, text: None)
    _stage(found, staged, old.path)
    assert distributions.load(staged) == []


# -- which Python, and whether it will do ------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "line", "minor"),
    [
        (
            ("dpkg-deb", "--contents", "/x.deb"),
            "-rw-r--r-- root/root 24 2026-01-01 00:00 "
            "./opt/saltstack/salt/lib/python3.14/site-packages/salt/__init__.py",
            14,
        ),
        (
            ("rpm", "-qpl", "/x.rpm"),
            "/usr/lib/venv-salt-minion/lib/python3.11/site-packages/salt/__init__.py",
            11,
        ),
        (
            ("dpkg-deb", "--contents", "/x.deb"),
            "./usr/lib/python3/dist-packages/salt/__init__.py",
            None,
        ),
    ],
)
def test_the_python_of_a_package(argv, line, minor):
    def runner(asked, **_):
        assert asked == argv
        return Result(argv=asked, returncode=0, stdout=f"./usr/\n{line}\n", stderr="")

    assert distributions.python_of([argv[-1]], runner) == minor


@pytest.mark.parametrize(
    ("requires", "allowed"),
    [
        ("", {9, 10, 11, 14}),
        (">=3.10", {10, 11, 14}),
        (">=3.10.2", {10, 11, 14}),
        ("<3.11", {9, 10}),
        (">=3.9,<4", {9, 10, 11, 14}),
        ("<4.0,>=3.11", {11, 14}),
        ("!=3.10.*", {9, 11, 14}),
        ("!=3.10.1, >3.9", {9, 10, 11, 14}),
        ("==3.11.*", {11}),
        ("==3.*", {9, 10, 11, 14}),
        ("~=3.10", {10, 11, 14}),
        ("~=3.10.1", {10}),
        ("<=3.11", {9, 10}),
        ("something else", {9, 10, 11, 14}),
    ],
)
def test_what_requires_python_allows(requires, allowed):
    assert {minor for minor in (9, 10, 11, 14) if distributions.allows(requires, minor)} == allowed


def test_who_says_by_himself_that_he_does_not_fit(old):
    old.add("picky", requires=f"<3.{NEXT}")
    old.add("easy", requires=">=3.6")
    found = _inventory(old)
    (problem,) = distributions.unfit(found, NEXT)
    assert (problem.extension, f"<3.{NEXT}" in problem.reason) == ("picky", True)
    assert distributions.unfit(found, MINOR) == []
    assert distributions.unfit(found, None) == []
