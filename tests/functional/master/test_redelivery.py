"""The master's job cache, as redelivery reads it."""

import pytest
import salt.config
import salt.utils.jid
import salt.utils.job

from saltext_safeupdate.master.redelivery import Redelivery


@pytest.fixture
def opts(tmp_path):
    opts = salt.config.master_config(None)
    opts.update(
        root_dir=str(tmp_path),
        cachedir=str(tmp_path / "cache"),
        sock_dir=str(tmp_path / "sock"),
        extension_modules=str(tmp_path / "extmods"),
    )
    return opts


@pytest.fixture
def work(opts):
    with Redelivery(opts) as opened:
        yield opened


def publish(work, opts, minions):
    """Write down what a master that publishes writes down; return the JID."""
    jid = salt.utils.jid.gen_jid(opts)
    load = {"jid": jid, "fun": "test.sleep", "arg": [1], "tgt": minions, "tgt_type": "list"}
    work._cache("save_load")(jid, load, minions=minions)
    return jid


def returns(work, opts, jid, minion):
    """A return arrives at the master."""
    load = {"jid": jid, "id": minion, "fun": "test.sleep", "return": True, "retcode": 0}
    salt.utils.job.store_job(opts, load | {"fun_args": [], "success": True}, mminion=work._minion)


def test_jobs_without_a_return_are_found(work, opts):
    done, half = publish(work, opts, ["a"]), publish(work, opts, ["a", "b"])
    returns(work, opts, done, "a")
    returns(work, opts, half, "a")
    assert [(jid, waiting) for jid, _, waiting in work.recent(60)] == [(half, ["b"])]


def test_a_return_that_no_master_published_hides_no_other_job(work, opts):
    """A minion's own job, as that of the watch, leaves an entry without minions."""
    returns(work, opts, salt.utils.jid.gen_jid(opts), "a")
    wanted = publish(work, opts, ["b"])
    assert [(jid, waiting) for jid, _, waiting in work.recent(60)] == [(wanted, ["b"])]
