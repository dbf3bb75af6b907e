"""Files in the place of marks that the scripts of Salt's packages trust."""

import os

import pytest

from saltext_safeupdate.core.prepare import marks


def _owned_by(uid):
    def lstat(path):
        values = list(os.lstat(path))
        values[4] = uid
        return os.stat_result(values)

    return lstat


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "mark"


def test_a_mark_of_root_is_one_of_the_packages(mark):
    assert marks.foreign([str(mark)]) == []
    mark.write_text("salt:salt\n")
    assert marks.foreign([str(mark)], _owned_by(0)) == []


def test_a_mark_of_a_user_is_told(mark):
    mark.write_text("mallory:mallory\n")
    ((problem, fix),) = marks.foreign([str(mark.with_name("none")), str(mark)], _owned_by(1000))
    assert problem.startswith(f"{mark} belongs to the user with the UID 1000, and not to root.")
    assert "safe to remove" in fix


def _link(path):
    os.symlink("/etc/shadow", path)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, _link])
def test_what_is_no_file_is_told_whoever_made_it(mark, make):
    make(str(mark))
    ((problem, _),) = marks.foreign([str(mark)], _owned_by(0))
    assert problem.startswith(f"{mark} is no regular file.")
