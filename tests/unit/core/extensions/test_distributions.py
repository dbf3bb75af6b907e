import os

import pytest

from saltext_safeupdate.core.extensions import distributions
from saltext_safeupdate.core.host.command import run

from .pythons import MINOR, inventory


def test_what_no_package_owns_is_found_ours_first(old):
    owned = [old.add("salt", "3007.15"), old.add("jinja2")]
    old.add("saltext.zfs", files={"saltext/zfs/__init__.py": ""}, point="saltext.zfs")
    old.add("saltext-safeupdate", "0.1.0", point="saltext_safeupdate")
    old.add("pip")
    found = inventory(old, owned)
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
    assert inventory(old) == []


def test_for_a_build_it_is_what_salt_does_not_need_and_the_build_has_not(old):
    old.add("salt", "3007.15", needs=["Jinja2>=3 ; python_version > '3'", "gone; extra == 'x'"])
    old.add("jinja2", needs=["MarkupSafe (>=2)"])
    old.add("markupsafe")
    old.add("pip")
    old.add("saltext-safeupdate", "0.1.0", point="saltext_safeupdate")
    old.add("saltext.zfs", needs=["libzfs"], point="saltext.zfs")
    for name in ("libzfs", "gone", "had.by-it"):
        old.add(name)
    found = distributions.inventory(old.path, run, set, ["had_by_it", "gone"])
    assert [each.name for each in found] == ["saltext-safeupdate", "libzfs", "saltext.zfs"]
    owned = distributions.inventory(old.path, run, lambda paths: set(), ["other"])
    assert owned == [], "packages own them"


def test_what_cannot_be_imported_now_is_not_asked_for_later(old):
    old.add("broken", files={"broken/__init__.py": "import nothing_of_that_name"})
    old.add("deadly", files={"deadly/__init__.py": "import os; os._exit(3)"})
    old.add("good")
    assert {each.name: each.modules for each in inventory(old)} == {
        "broken": (),
        "deadly": (),
        "good": ("good",),
    }


def test_a_distribution_without_a_list_of_its_files(old):
    info = old.add("listless", record=False).parent
    (info / "top_level.txt").write_text("listless\n_listless\n")
    (old.place / "_listless.py").write_text("")
    (each,) = inventory(old)
    assert {"listless/__init__.py", "_listless.py", f"{info.name}/METADATA"} <= set(each.files)
    assert set(each.modules) == {"listless", "_listless"}


@pytest.mark.parametrize(("before", "now"), [("1.0", "2.0"), ("2.0", "1.0")])
def test_what_was_installed_last_counts_if_metadata_of_another_version_are_left(old, before, now):
    """So does pip leave it if it installs into a target, as the bundle has it do."""
    info = old.add("upgraded", before, files={"upgraded/gone.py": ""})
    os.utime(info, (1, 1))
    (old.place / "upgraded" / "gone.py").unlink()
    old.add("upgraded", now, files={"upgraded/new.py": ""})
    (each,) = inventory(old)
    assert (each.version, each.info) == (now, f"upgraded-{now}.dist-info")
    assert "upgraded/new.py" in each.files


def test_to_list_them_nothing_is_imported(old):
    old.add("deadly", files={"deadly/__init__.py": "import os; os._exit(3)"}, requires="<3.99")
    programs = []

    def runner(argv, **kwargs):
        programs.append(argv)
        return run(argv, **kwargs)

    (each,) = distributions.listed(old.path, runner, set)
    assert (each.name, each.requires, each.modules) == ("deadly", "<3.99", ())
    assert len(programs) == 1
