"""What Salt makes of the errors of runner functions: a failure, for shells and orchestrations."""

import pytest
import salt.config
import salt.runner


@pytest.fixture
def client(tmp_path):
    opts = salt.config.DEFAULT_MASTER_OPTS.copy()
    names = ("cachedir", "pki_dir", "sock_dir", "root_dir", "extension_modules", "sqlite_queue_dir")
    opts.update({name: str(tmp_path) for name in names}, id="m_master", __role="master")
    (tmp_path / "proc").mkdir()
    opts["conf_file"] = str(tmp_path / "master")
    return salt.runner.RunnerClient(opts)


def test_bad_input_is_a_failure(client):
    """Salt shows the usage for it, and takes that for the answer."""
    args, given = ["nobody*"], {"version": "3008.3"}
    found = client.cmd("safeupdate.rollout", args, kwarg=given, full_return=True, print_event=False)
    assert "means no minion with an accepted key" in found["return"]
    assert found["success"] is False
