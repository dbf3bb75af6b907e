"""What the supervisor, which has another environment, gets of that of the minion."""

import pytest

from saltext_safeupdate.core.host import inherited

SECRET = "http://user:secret@proxy:3128"


def _loaded(directory, **environment):
    inherited.load(str(directory), environment)
    return environment


def test_what_the_minion_has_the_supervisor_gets(tmp_path):
    directory = tmp_path / "state"
    config = tmp_path / "apt.conf"
    config.touch()
    wanted = {"HTTPS_PROXY": SECRET, "no_proxy": "localhost", "APT_CONFIG": str(config)}
    inherited.save(str(directory), {**wanted, "PATH": "/bin"})
    assert _loaded(directory) == wanted
    assert _loaded(directory, no_proxy="own")["no_proxy"] == "own"
    (file,) = directory.iterdir()
    assert (file.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_configuration_of_apt_that_is_gone_is_left_out(tmp_path, caplog):
    inherited.save(str(tmp_path), {"APT_CONFIG": str(tmp_path / "gone")})
    assert _loaded(tmp_path) == {}
    assert "without this configuration" in caplog.text


def test_a_proxy_that_is_gone_is_forgotten(tmp_path):
    inherited.save(str(tmp_path), {"http_proxy": SECRET})
    inherited.save(str(tmp_path), {})
    assert _loaded(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["{", "[]", "1", '{"PATH": "/x"}', '{"http_proxy": 1}', '{"http_proxy": "a\\u0000"}']
)
def test_what_is_on_the_disk_is_checked(tmp_path, text):
    (tmp_path / "environment.json").write_text(text)
    assert _loaded(tmp_path) == {}


def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    (tmp_path / "state").touch()
    inherited.save(str(tmp_path / "state"), {"http_proxy": SECRET})
    assert "cannot be written" in caplog.text
    assert "secret" not in caplog.text
