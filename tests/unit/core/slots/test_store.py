import contextlib
import errno
import json
import os
import pathlib
import shutil

import pytest

from saltext_safeupdate.core.errors import (
    InputError,
    LockHeldError,
    SafeUpdateError,
    VerificationError,
)
from saltext_safeupdate.core.host import room
from saltext_safeupdate.core.slots import locking, private
from saltext_safeupdate.core.slots.store import Slots
from tests.support import builds
from tests.support.builds import hard_link, member, symlink
from tests.support.failing_disk import FailingDisk
from tests.support.simulated import Killed

MINION = "salt-minion"


def _names(slots):
    return sorted(os.listdir(os.path.join(slots, "slots")))


@pytest.fixture
def below(tmp_path):
    """What is below the directory of the slots."""
    return lambda: _names(tmp_path / "slots")


# -- stage -------------------------------------------------------------------------------


def test_a_build_becomes_a_slot(slots, build, clock, below):
    manifest, files = build()
    slot = slots.stage(manifest, files)
    assert (slot.ident, slot.version, slot.kind) == (manifest.ident, "3008.3", "onedir")
    assert slot.staged == clock()
    assert slot.size > 15_000
    assert pathlib.Path(slot.tree, "salt-minion").read_text() == builds.BESIDE.decode()
    assert os.path.samefile(f"{slot.tree}/bin/salt-minion", f"{slot.tree}/salt-minion")
    assert below() == [slot.ident], "the archive is not kept"
    assert sorted(os.listdir(os.path.dirname(slot.tree))) == [
        "complete.json",
        "inventory.json",
        "tree",
    ]
    slots.verify(slot.ident)


def test_wheels_become_one_as_well(slots, tmp_path):
    path = builds.salt_wheel(tmp_path / "salt-3008.3-py3-none-any.whl")
    found = builds.parsed(path, kind="wheels", python="3.11", machine="any")
    slot = slots.stage(found, {os.path.basename(path): path}, python=builds.PYTHON)
    program = pathlib.Path(slot.tree, "bin", "salt-minion")
    assert program.read_text().startswith(f"#!{builds.PYTHON}\n")
    assert os.access(program, os.X_OK)
    slots.verify(slot.ident)


def test_what_is_there_already_is_not_made_again(slots, build):
    manifest, files = build()
    slot = slots.stage(manifest, files)
    before = os.stat(slot.tree).st_ino
    assert slots.stage(manifest, {}) == slot
    assert os.stat(slot.tree).st_ino == before


def test_one_that_was_altered_is_made_anew(slots, build):
    manifest, files = build()
    slot = slots.stage(manifest, files)
    pathlib.Path(slot.tree, "salt-call").write_text("changed")
    slots.stage(manifest, files)
    slots.verify(slot.ident)


@pytest.mark.parametrize("why", ["active", "held"])
def test_one_that_was_altered_and_is_needed_is_left_and_told(slots, build, why):
    manifest, files = build()
    slot = slots.stage(manifest, files)
    held = slots.hold(slot.ident) if why == "held" else None
    if why == "active":
        slots.activate(MINION, slot.ident)
    pathlib.Path(slot.tree, "salt-call").write_text("changed")
    with pytest.raises(VerificationError, match="salt-call was changed"):
        slots.stage(manifest, files)
    assert pathlib.Path(slot.tree, "salt-call").read_text() == "changed"
    if held:
        os.close(held)


def test_others_can_start_its_interpreter_and_write_nothing(slots, staged, tmp_path):
    """Jobs of other users do so: 'cmd.run' with 'runas'."""
    before = os.umask(0o077)
    slot = staged()
    slots.activate(MINION, slot.ident)
    os.umask(before)
    for place, _, files in os.walk(tmp_path / "slots"):
        assert os.stat(place).st_mode & 0o777 == 0o755, place
        for name in files:
            assert os.stat(os.path.join(place, name)).st_mode & 0o022 == 0, name
    assert os.stat(os.path.join(slot.tree, "bin", "python3.11")).st_mode & 0o777 == 0o755
    assert os.stat(tmp_path / "slots" / "lock").st_mode & 0o777 == 0o600


def test_what_salt_pip_adds_is_no_change_of_it(slots, staged):
    slot = staged()
    extras = pathlib.Path(slot.tree, "extras-3.11")
    extras.mkdir()
    (extras / "boto.py").touch()
    slots.verify(slot.ident)
    pathlib.Path(slot.tree, "lib", "boto.py").touch()
    with pytest.raises(VerificationError, match=r"boto\.py was added"):
        slots.verify(slot.ident)


def test_an_update_of_this_extension_is_no_change_of_it(slots, build):
    """It has its own versions, and its own way back."""

    def furnish(tree):
        for name in ("saltext_safeupdate", "saltext_safeupdate-0.1.0.dist-info"):
            pathlib.Path(tree, "lib", name).mkdir()
            pathlib.Path(tree, "lib", name, "old").touch()

    slot = slots.stage(*build(), furnish=furnish)
    library = pathlib.Path(slot.tree, "lib")
    shutil.rmtree(library / "saltext_safeupdate-0.1.0.dist-info")
    (library / "saltext_safeupdate" / "old").write_text("new")
    (library / "saltext_safeupdate" / "more.py").touch()
    (library / "saltext_safeupdate-0.2.0.dist-info").mkdir()
    (library / ".saltext_safeupdate.part").mkdir()
    slots.verify(slot.ident)
    (library / "saltext_safeupdate_other").mkdir()
    with pytest.raises(VerificationError, match="saltext_safeupdate_other was added"):
        slots.verify(slot.ident)


@pytest.mark.parametrize("gone", ["tree", "complete.json", "inventory.json"])
def test_what_is_left_of_a_slot_is_none_and_it_is_made_anew(slots, build, staged, gone):
    slot = staged()
    path = pathlib.Path(slot.tree).parent / gone
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    again = slots.stage(*build())
    slots.verify(again.ident)
    slots.prune(1)
    assert [path.name for path in pathlib.Path(slot.tree).parents[1].iterdir()] == [slot.ident]


def test_two_builds_of_a_version_are_told_apart(slots, build):
    one = slots.stage(*build("3008.3"))
    other = slots.stage(*build("3008.3", extension="0.1.1"))
    assert one.build_version != other.build_version
    for slot in (one, other):
        assert slot.build_version.startswith("3008.3-")
        assert slot.ident.partition(slot.version)[2].startswith("-")
        assert slot.build_version.rpartition("-")[2] in slot.ident


def test_what_is_furnished_is_part_of_it(slots, build):
    def furnish(tree):
        pathlib.Path(tree, "lib", "extension.py").write_text("x")

    slot = slots.stage(*build(), furnish=furnish)
    pathlib.Path(slot.tree, "lib", "extension.py").write_text("y")
    with pytest.raises(VerificationError, match=r"lib/extension\.py was changed"):
        slots.verify(slot.ident)


def test_where_it_cannot_be_furnished_nothing_is_left(slots, build, below):
    def furnish(tree):
        raise SafeUpdateError("pip failed")

    with pytest.raises(SafeUpdateError, match="pip failed"):
        slots.stage(*build(), furnish=furnish)
    assert below() == []


def test_a_file_that_is_not_the_one_of_the_manifest_is_not_unpacked(slots, build, below):
    manifest, files = build()
    ((name, path),) = files.items()
    whole = pathlib.Path(path).read_bytes()
    for content in (whole[:-1], whole + b"x", b"x" + whole[1:], b""):
        pathlib.Path(path).write_bytes(content)
        with pytest.raises(VerificationError, match=f"{name} is not the file that the manifest"):
            slots.stage(manifest, files)
        assert below() == []


def test_a_pipe_in_its_place_has_nobody_wait(slots, build, below):
    manifest, files = build()
    (path,) = files.values()
    os.unlink(path)
    os.mkfifo(path)
    with pytest.raises(VerificationError, match="is not a regular file"):
        slots.stage(manifest, files)
    assert below() == []


def test_a_file_that_is_gone_is_told(slots, build, below):
    manifest, files = build()
    (path,) = files.values()
    os.unlink(path)
    with pytest.raises(SafeUpdateError, match=r"No such file.*Nothing was changed"):
        slots.stage(manifest, files)
    assert below() == []


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([*builds.onedir(), member("salt/../../x", b"x")], {}),
        ([*builds.onedir(), member("salt/x", b"x", mode=0o4755)], {}),
        (builds.onedir(), {"unpacked": 10}),
        ([member("salt/bin/python3", b"x", mode=0o755)], {}),
        ([member("salt/bin/salt-minion", b"x", mode=0o644)], {}),
        ([member("salt/salt-minion", b"#!/opt/saltstack/salt/bin/python3\n", mode=0o755)], {}),
        # This extension could not be put beside a Salt whose interpreter is not known.
        ([member("salt/salt-minion", b"#!/bin/sh\nexec python3\n", mode=0o755)], {}),
    ],
    ids=[
        *("leads out", "setuid", "larger than it says", "no minion", "not a program"),
        *("starts another interpreter", "starts one that is not known"),
    ],
)
def test_a_build_that_is_refused_leaves_nothing(slots, build, tmp_path, below, entries, said):
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(VerificationError, match="is refused"):
        slots.stage(*build(entries=entries, **said))
    assert below() == []
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "slots"])


def test_what_is_for_another_machine_is_not_even_looked_at(slots, build, tmp_path):
    with pytest.raises(InputError, match=r"is for s390x, and this host is .*use a build for this"):
        slots.stage(build(machine="s390x")[0], {})
    assert not (tmp_path / "slots").exists()


def test_wheels_for_a_python_that_is_not_there_are_refused(slots, tmp_path):
    path = builds.salt_wheel(tmp_path / "salt-3008.3-py3-none-any.whl")
    found = builds.parsed(path, kind="wheels", python="3.99")
    with pytest.raises(InputError, match=r"needs Python 3\.99, which this host does not have"):
        slots.stage(found, {})


def test_room_is_looked_at_before(tmp_path, build, below):
    class Statvfs:
        f_frsize = 1
        f_bavail = room.RESERVE + 100_000

    slots = Slots(str(tmp_path / "slots"), statvfs=lambda path: Statvfs)
    with pytest.raises(SafeUpdateError, match=r"There is no room for salt-3008.3: the file system"):
        slots.stage(*build())
    assert below() == []


# -- who may write to it -----------------------------------------------------------------


def test_a_directory_that_others_can_write_to_has_no_slots(slots, build, tmp_path):
    (tmp_path / "slots").mkdir()
    (tmp_path / "slots").chmod(0o775)
    with pytest.raises(SafeUpdateError, match=r"cannot be in .*: others can write to it"):
        slots.stage(*build())
    assert os.listdir(tmp_path / "slots") == []


def test_nor_has_one_below_such(build, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    slots = Slots(str(tmp_path / "open" / "slots"))
    for call in (
        lambda: slots.stage(*build()),
        lambda: slots.prune(0),
        lambda: slots.leave(MINION),
    ):
        with pytest.raises(SafeUpdateError, match=r"others can write to .*/open"):
            call()
    assert os.listdir(tmp_path / "open") == [], "others could put something else in its place"


def test_what_is_put_in_the_place_of_a_new_directory_is_left_alone(tmp_path, monkeypatch):
    secret, make = tmp_path / "secret", os.mkdir
    secret.touch(0o600)

    def mkdir(path, mode=0o777):
        make(path, mode)
        os.rmdir(path)
        os.symlink(secret, path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", mkdir)
        with contextlib.suppress(SafeUpdateError):
            Slots(str(tmp_path / "slots")).prune(0)
    assert secret.stat().st_mode & 0o777 == 0o600


def test_nor_a_link_to_another_place(build, tmp_path):
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("other")
    with pytest.raises(SafeUpdateError, match="cannot be in"):
        Slots(str(tmp_path / "link")).stage(*build())


def test_nor_one_whose_name_has_a_blank(build, tmp_path):
    """systemd would start a program there, and does not tell its path so that it could be read."""
    with pytest.raises(SafeUpdateError, match=r"Slots cannot be in .* has a blank.*Nothing was"):
        Slots(str(tmp_path / "my slots")).stage(*build())


def test_nor_a_file_system_from_which_nothing_is_started(tmp_path):
    class Mounted:
        f_flag = os.ST_NOEXEC | os.ST_NOSUID

    with pytest.raises(SafeUpdateError, match="is mounted 'noexec'; choose another place"):
        private.check(str(tmp_path), statvfs=lambda path: Mounted)


def test_while_a_slot_is_made_other_minions_go_on_and_back(slots, build, staged):
    """One that does not come up must not wait for the build of another minion."""
    one, other = staged("3007.15"), staged("3007.20")

    def meanwhile(tree):
        slots.activate("one", one.ident)
        slots.activate("one", other.ident)
        slots.activate("one", one.ident)
        slots.leave("one")

    slots.stage(*build("3008.3"), furnish=meanwhile)
    assert not slots.has("one")


def test_whoever_goes_back_waits_while_slots_are_removed(tmp_path, staged):
    slot = staged()
    held = locking.alone(str(tmp_path / "slots" / "links.lock"))
    held.__enter__()
    slots = Slots(str(tmp_path / "slots"), sleep=lambda seconds: held.__exit__(None, None, None))
    slots.activate(MINION, slot.ident)
    assert slots.active(MINION) == slot.ident


def test_where_others_can_write_by_now_nothing_is_activated_and_the_way_back_is_open(
    slots, staged, tmp_path
):
    one, other, third = (staged(f"3008.{number}").ident for number in (1, 2, 3))
    slots.activate(MINION, one)
    slots.activate(MINION, other)
    (tmp_path / "slots").chmod(0o777)
    with pytest.raises(SafeUpdateError, match="others can write to it"):
        slots.activate(MINION, third)
    slots.activate(MINION, one)
    assert slots.active(MINION) == one
    slots.leave(MINION)
    assert not slots.has(MINION)


def test_two_do_not_change_it_at_once(slots, build):
    def meanwhile(tree):
        with pytest.raises(LockHeldError, match="Another process changes the slots"):
            slots.prune(0)

    slots.stage(*build(), furnish=meanwhile)


# -- verify ------------------------------------------------------------------------------


def _edit(tree):
    path = tree / "lib/python3.11/site-packages/salt/version.py"
    seen = path.stat()
    path.write_text("3008.4")
    os.utime(path, ns=(seen.st_mtime_ns, seen.st_mtime_ns))


CHANGES = {
    "a file with the same size and time": _edit,
    "a file is gone": lambda tree: (tree / "salt-call").unlink(),
    "a file more": lambda tree: (tree / "lib" / "more.py").touch(),
    "a mode": lambda tree: (tree / "salt-call").chmod(0o644),
    "a link leads elsewhere": lambda tree: (
        (tree / "bin/python3").unlink(),
        (tree / "bin/python3").symlink_to("/usr/bin/python3"),
    ),
    "a file became a link": lambda tree: (
        (tree / "salt-call").rename(tree / "bin" / "python3"),
        (tree / "salt-call").symlink_to("bin/python3"),
    ),
    "a pipe": lambda tree: os.mkfifo(tree / "pipe"),
    "a directory is gone": lambda tree: shutil.rmtree(tree / "lib"),
    "the list itself": lambda tree: (tree.parent / "inventory.json").write_text("{}"),
    "the list is gone": lambda tree: (tree.parent / "inventory.json").unlink(),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_what_was_changed_on_the_disk_is_found(slots, staged, name):
    slot = staged()
    CHANGES[name](pathlib.Path(slot.tree))
    with pytest.raises(VerificationError, match=r"has changed since it was made: .*stage it again"):
        slots.verify(slot.ident)


def test_byte_code_that_python_writes_is_no_change(slots, staged):
    slot = staged()
    cache = pathlib.Path(slot.tree, "lib", "__pycache__")
    cache.mkdir()
    (cache / "a.cpython-311.pyc").write_bytes(b"x")
    slots.verify(slot.ident)


def test_byte_code_of_a_build_that_python_writes_anew_is_no_change(slots, build):
    """A tool may have set the times of the sources: it could never be left again."""

    def furnish(tree):
        cache = pathlib.Path(tree, "lib", "__pycache__")
        cache.mkdir()
        (cache / "a.cpython-311.pyc").write_bytes(b"stale")

    slot = slots.stage(*build(), furnish=furnish)
    pathlib.Path(slot.tree, "lib", "__pycache__", "a.cpython-311.pyc").write_bytes(b"fresh")
    slots.verify(slot.ident)


def test_all_users_read_what_a_narrow_umask_has_made(slots, build):
    def furnish(tree):
        package = pathlib.Path(tree, "lib", "extension")
        package.mkdir(0o700)
        (package / "module.py").touch(0o600)
        (package / "program").touch(0o700)
        (package / "link").symlink_to("/etc/shadow")

    before = os.lstat("/etc/shadow").st_mode
    slot = slots.stage(*build(), furnish=furnish)
    package = pathlib.Path(slot.tree, "lib", "extension")
    found = [package, package / "module.py", package / "program"]
    assert [path.stat().st_mode & 0o777 for path in found] == [0o755, 0o644, 0o755]
    assert os.lstat("/etc/shadow").st_mode == before


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"ident": 1}', "null", "\0"], ids=repr)
def test_one_whose_mark_is_damaged_is_none(slots, staged, content):
    slot = staged()
    mark = pathlib.Path(slot.tree).parent / "complete.json"
    mark.write_text(content)
    assert slots.slots() == []
    with pytest.raises(InputError, match="There is no slot"):
        slots.activate(MINION, slot.ident)


def test_the_mark_of_another_is_none_of_its_own(slots, staged):
    one, other = staged("3007.15"), staged("3008.3")
    for path in (one, other):
        mark = pathlib.Path(path.tree).parent / "complete.json"
        mark.write_text(json.dumps({**json.loads(mark.read_text()), "ident": one.ident}))
    assert [slot.ident for slot in slots.slots()] == [one.ident]


@pytest.mark.parametrize("ident", ["", ".", "..", "../slots", "/etc", "a/b", "none"])
def test_what_is_no_slot_is_not_found(slots, staged, ident):
    staged()
    for call in (slots.get, slots.verify, slots.hold, slots.forget):
        with pytest.raises(InputError, match="There is no slot"):
            call(ident)


# -- active and previous -----------------------------------------------------------------


def test_active_is_one_link_and_so_is_previous(slots, staged, tmp_path):
    one, other = staged("3007.15"), staged("3008.3")
    assert (slots.active(MINION), slots.previous(MINION)) == (None, None)
    slots.activate(MINION, one.ident)
    assert (slots.active(MINION), slots.previous(MINION)) == (one.ident, None)
    slots.activate(MINION, other.ident)
    assert (slots.active(MINION), slots.previous(MINION)) == (other.ident, one.ident)
    place = tmp_path / "slots" / "minions" / MINION
    assert sorted(os.listdir(place)) == ["active", "previous"]
    assert os.path.samefile(place / "active", other.tree)
    assert os.access(place / "active" / "bin" / "salt-minion", os.X_OK)


def test_again_it_changes_nothing(slots, staged):
    one, other = staged("3007.15"), staged("3008.3")
    for slot in (one, other, other):
        slots.activate(MINION, slot.ident)
    assert (slots.active(MINION), slots.previous(MINION)) == (other.ident, one.ident)


def _links(slots):
    return slots.active(MINION), slots.previous(MINION)


def test_who_goes_back_has_the_way_back_of_before(slots, staged):
    first, one, other = (staged(f"3008.{number}").ident for number in (1, 2, 3))
    for ident, previous in ((first, None), (one, first)):
        slots.activate(MINION, ident)
        slots.settle(MINION)
        slots.activate(MINION, other)
        assert _links(slots) == (other, ident)
        assert previous is None or slots.prune(0) == [], "it leads back, if it comes to that"
        for _ in range(2):
            slots.activate(MINION, ident)
            assert _links(slots) == (ident, previous)
        slots.settle(MINION)
        assert _links(slots) == (ident, previous)


def test_what_is_kept_for_the_way_back_goes_with_the_end_of_an_update(slots, staged):
    idents = [staged(f"3008.{number}").ident for number in (1, 2, 3)]
    for ident in idents:
        slots.activate(MINION, ident)
    assert slots.prune(0) == []
    slots.settle(MINION, idents[1])
    assert slots.prune(0) == idents[:1]
    assert _links(slots) == (idents[2], idents[1])


def test_an_update_to_the_previous_one_leads_back_from_there(slots, staged):
    one, other = staged("3007.15").ident, staged("3008.3").ident
    slots.activate(MINION, one)
    slots.activate(MINION, other)
    slots.settle(MINION, one)
    slots.activate(MINION, one)
    assert slots.prune(0) == [], "the update may still be taken back"
    slots.settle(MINION, other)
    assert _links(slots) == (one, other)


def test_the_way_back_does_not_lead_to_what_is_gone(slots, staged):
    one, other = staged("3007.15"), staged("3008.3")
    slots.activate(MINION, one.ident)
    slots.activate(MINION, other.ident)
    shutil.rmtree(os.path.dirname(one.tree))
    with pytest.raises(InputError):
        slots.activate(MINION, one.ident)
    assert slots.active(MINION) == other.ident


def test_who_leaves_all_slots_can_go_back_until_the_update_has_ended(slots, staged):
    first, one = staged("3007.15").ident, staged("3008.3").ident
    slots.activate(MINION, first)
    slots.activate(MINION, one)
    for _ in range(2):
        slots.step_out(MINION)
        assert _links(slots) == (None, one)
    assert slots.prune(0) == [], "another minion of the host has ended an update"
    with pytest.raises(InputError, match="is active or previous"):
        slots.forget(one)
    for _ in range(2):
        slots.activate(MINION, one)
        assert _links(slots) == (one, first)
    slots.settle(MINION)
    assert _links(slots) == (one, first)
    slots.step_out(MINION)
    slots.leave(MINION)
    assert _links(slots) == (None, None)
    assert sorted(slots.prune(0)) == sorted([first, one])


def test_who_leaves_all_slots_does_so_on_a_disk_that_is_full(slots, staged, monkeypatch):
    """Some file systems need room to rename, too."""
    slots.activate(MINION, staged().ident)

    def replace(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", replace)
    slots.step_out(MINION)
    assert _links(slots) == (None, None)


def test_an_update_that_left_no_slot_leads_back_to_none(slots, staged):
    one, other = staged("3007.15").ident, staged("3008.3").ident
    slots.activate(MINION, one)
    slots.activate(MINION, other)
    slots.settle(MINION, None)
    assert _links(slots) == (other, None)


def test_minions_of_a_host_share_slots_and_not_their_links(slots, staged):
    one, other = staged("3007.15"), staged("3008.3")
    slots.activate("salt-minion", one.ident)
    slots.activate("salt-minion2", other.ident)
    assert slots.active("salt-minion") == one.ident
    assert slots.active("salt-minion2") == other.ident
    slots.leave("salt-minion")
    assert (slots.active("salt-minion"), slots.active("salt-minion2")) == (None, other.ident)
    slots.leave("salt-minion")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\n", "-a"])
def test_what_is_no_name_of_a_unit_gets_no_links(slots, staged, name):
    with pytest.raises(InputError, match="is not the name of a unit"):
        slots.activate(name, staged().ident)


def test_a_link_that_somebody_else_has_made_is_not_one_of_ours(slots, staged, tmp_path):
    slot = staged()
    slots.activate(MINION, slot.ident)
    active = tmp_path / "slots" / "minions" / MINION / "active"
    active.unlink()
    active.symlink_to("/opt/saltstack/salt")
    assert slots.active(MINION) is None
    slots.activate(MINION, slot.ident)
    assert (slots.active(MINION), slots.previous(MINION)) == (slot.ident, None)


# -- retention ---------------------------------------------------------------------------


def test_the_newest_are_kept_and_whatever_is_needed(slots, staged, below):
    idents = [staged(f"3008.{number}").ident for number in range(1, 7)]
    slots.activate(MINION, idents[0])
    slots.activate(MINION, idents[1])
    held = slots.hold(idents[2])
    try:
        assert sorted(slots.prune(1)) == [idents[3], idents[4]]
        assert [slot.ident for slot in slots.slots()] == [idents[number] for number in (5, 2, 1, 0)]
        assert slots.prune(0) == [idents[5]]
    finally:
        os.close(held)
    assert slots.prune(0) == [idents[2]]
    assert below() == sorted(idents[:2])


def test_what_a_child_holds_stays_when_its_parent_has_let_go(slots, staged):
    """Jobs outlive their main process."""
    slot = staged()
    held = slots.hold(slot.ident)
    child = os.dup(held)
    os.close(held)
    assert slots.prune(0) == []
    os.close(child)
    assert slots.prune(0) == [slot.ident]


def test_one_is_forgotten_unless_it_is_needed(slots, staged, below):
    one, other, third = (staged(f"3008.{number}") for number in (1, 2, 3))
    slots.activate(MINION, one.ident)
    slots.activate(MINION, other.ident)
    held = slots.hold(third.ident)
    for slot in (one, other, third):
        with pytest.raises(InputError, match="Nothing was changed"):
            slots.forget(slot.ident)
    os.close(held)
    slots.forget(third.ident)
    assert below() == sorted([one.ident, other.ident])


def test_a_version_of_the_same_name_is_another_slot(slots, build):
    one = slots.stage(*build())
    other = slots.stage(*build(entries=[*builds.onedir(), member("salt/new", b"x")]))
    assert one.ident != other.ident
    assert {slot.ident for slot in slots.slots()} == {one.ident, other.ident}


# -- death and a full disk at each step --------------------------------------------------


@pytest.fixture
def disk(monkeypatch):
    return FailingDisk(monkeypatch)


class Scene:
    """A host that runs from one slot, went there from another, and may get a third."""

    def __init__(self, top, manifest, files):
        self.slots = Slots(str(top / "slots"))
        self.manifest, self.files = manifest, files
        self.new = manifest.ident
        self.top = top
        self.old = ""

    def begin(self, before, old, spare):
        self.slots.activate(MINION, self.slots.stage(*before).ident)
        self.old = self.slots.stage(*old).ident
        self.slots.activate(MINION, self.old)
        self.slots.stage(*spare)

    def copy(self, top):
        """Return the same on another disk."""
        shutil.copytree(self.top, top, symlinks=True)
        found = Scene(top, self.manifest, self.files)
        found.old = self.old
        return found

    def stage(self):
        self.slots.stage(self.manifest, self.files)

    def activate(self):
        self.slots.activate(MINION, self.new)

    def go_back(self):
        self.slots.activate(MINION, self.old)

    def settle(self):
        self.slots.settle(MINION, self.old)

    def step_out(self):
        self.slots.step_out(MINION)

    def go_back_in(self):
        self.slots.activate(MINION, self.old)

    def prune(self):
        self.slots.prune(0)

    def leave(self):
        self.slots.leave(MINION)

    def check(self, *active):
        """The host can start its minion, and nothing that is said to be complete is not."""
        assert self.slots.active(MINION) in active
        if self.slots.active(MINION):
            program = self.top / "slots" / "minions" / MINION / "active" / "bin" / "salt-minion"
            assert os.access(program, os.X_OK)
        for slot in self.slots.slots():
            self.slots.verify(slot.ident)
        there = {slot.ident for slot in self.slots.slots()}
        for ident in (self.slots.active(MINION), self.slots.previous(MINION)):
            assert ident is None or ident in there
        assert there >= {self.old}


# What is done, what was done before, and what may be active after a fault in it.
ACTIONS = {
    "stage": ((), ("old",)),
    "activate": (("stage",), ("old", "new")),
    "go_back": (("stage", "activate"), ("old", "new")),
    "settle": (("stage", "activate"), ("new",)),
    "step_out": ((), ("old", "none")),
    "go_back_in": (("step_out",), ("old", "none")),
    "prune": ((), ("old",)),
    "leave": ((), ("old", "none")),
}


@pytest.fixture
def scene(tmp_path, build):
    (tmp_path / "whole").mkdir()
    entries = [
        member("salt/salt-minion", builds.BESIDE, mode=0o755),
        symlink("salt/link", "salt-minion"),
        hard_link("salt/lib/again", "salt/salt-minion"),
    ]
    found = [build(version, entries) for version in ("3008.3", "3006.28", "3007.15", "3006.10")]
    made = Scene(tmp_path / "whole", *found[0])
    made.begin(*found[1:])
    return made


@pytest.mark.parametrize("kind", ["kill", "full", "error"])
@pytest.mark.parametrize("action", list(ACTIONS))
def test_a_fault_at_any_step_leaves_what_runs(tmp_path, scene, disk, action, kind):
    first, active = ACTIONS[action]
    for each in first:
        getattr(scene, each)()
    after = scene.copy(tmp_path / "after")
    with disk.at_work():
        getattr(after, action)()
    steps = disk.done
    assert steps > 1
    for at in range(1, steps + 1):
        faulty = scene.copy(tmp_path / f"at{at}")
        with disk.at_work(kind, at), contextlib.suppress(Killed, SafeUpdateError):
            getattr(faulty, action)()
        faulty.check(*(getattr(faulty, name, None) for name in active))
        # It is done by whoever comes next, with nothing to mend before.
        getattr(faulty, action)()
        faulty.check(*(getattr(faulty, name, None) for name in active))
        assert _names(faulty.top / "slots") == _names(after.top / "slots"), "there are leftovers"
        shutil.rmtree(faulty.top)


def test_all_of_it_is_on_the_disk_before_it_is_called_complete(slots, build, monkeypatch):
    """After a power cut, what was not synced may be empty."""
    synced, fsync, rename = set(), os.fsync, os.rename

    def noting(fd):
        seen = os.fstat(fd)
        synced.add((seen.st_dev, seen.st_ino))
        fsync(fd)

    def checked(source, target):
        found = [pathlib.Path(source), *pathlib.Path(source).rglob("*")]
        seen = {path: os.lstat(path) for path in found if not path.is_symlink()}
        missing = [path for path, it in seen.items() if (it.st_dev, it.st_ino) not in synced]
        assert missing == []
        assert len(seen) > 10
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "rename", checked)
    slots.stage(*build())


def test_a_full_disk_is_told_with_what_to_do(slots, build, disk):
    manifest, files = build()
    with disk.at_work("full", 5), pytest.raises(SafeUpdateError) as told:
        slots.stage(manifest, files)
    assert os.strerror(errno.ENOSPC) in str(told.value)
    assert "Nothing was changed, and the minion runs as before; check the disk of" in str(
        told.value
    )
