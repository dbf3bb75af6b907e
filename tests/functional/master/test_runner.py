"""What Salt makes of the errors of runner functions: a failure, for shells and orchestrations."""

import pytest
import salt.config
import salt.runner


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    place = tmp_path_factory.mktemp("master")
    opts = salt.config.DEFAULT_MASTER_OPTS.copy()
    names = ("cachedir", "pki_dir", "sock_dir", "root_dir", "extension_modules", "sqlite_queue_dir")
    opts.update({name: str(place) for name in names}, id="m_master", __role="master")
    (place / "proc").mkdir()
    opts["conf_file"] = str(place / "master")
    return salt.runner.RunnerClient(opts)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("rollout", "nobody*", {"version": "3008.3"}), "means no minion with an accepted key"),
        (("status", "gone"), "There is no rollout gone"),
        (("forget",), "Give the ID of a minion"),
    ],
    ids=str,
)
def test_bad_input_is_a_failure(client, call, said):
    """Salt shows the usage for it, and takes that for the answer."""
    fun, *args = call
    given = args.pop() if args and isinstance(args[-1], dict) else {}
    client.context.clear()
    found = client.cmd(f"safeupdate.{fun}", args, kwarg=given, print_event=False, full_return=True)
    assert said in found["return"]
    assert found["success"] is False
