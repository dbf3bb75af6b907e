import pytest

from saltext_safeupdate.core.host.command import run

from .pythons import Python


@pytest.fixture
def old(tmp_path, real_process):
    return Python(tmp_path / "old")


@pytest.fixture
def new(tmp_path, real_process):
    return Python(tmp_path / "new")


@pytest.fixture
def staged(tmp_path):
    return str(tmp_path / "staged")


@pytest.fixture
def index(tmp_path, real_process):
    """Return a runner whose pip finds what is in the directory ``wheels``, and only that."""

    def runner(argv, **kwargs):
        env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}
        return run(argv, **{**kwargs, "env": env})

    return runner
