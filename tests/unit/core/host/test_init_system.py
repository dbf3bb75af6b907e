import pytest

from saltext_safeupdate.core.host import init_system
from tests.support.fakes import FakeRunner


@pytest.mark.parametrize(("there", "name"), [(True, "systemd"), (False, "direct")])
def test_systemd_is_used_where_it_is_pid_1(monkeypatch, there, name):
    monkeypatch.setattr(init_system.os.path, "isdir", lambda path: there)
    assert init_system.detect(FakeRunner()).name == name
