"""Whatever is wrong with a master, each runner function answers or refuses in one line."""

import contextlib
import os
import pathlib
import sqlite3

import pytest
import salt.config

from saltext_safeupdate.admin import errors
from saltext_safeupdate.master import account as accounts
from saltext_safeupdate.master.account import Account, path_of
from saltext_safeupdate.master.store import MINIONS, ROLLOUTS, Store
from saltext_safeupdate.runners import safeupdate as runner
from tests.support.full import full_disk
from tests.unit.test_surface import SURFACE

NOBODY = 65534
NAMES = sorted(SURFACE["runners"]["safeupdate"])
# These need a version.
BRINGING = ("plan", "rollout", "update_master")
ROLLOUT = "20260101120000000000"
# With what a person may give them; the others need nothing.
GIVEN = {
    "abort": (ROLLOUT,),
    "allow": ("3008.3",),
    "avail": ("salt://builds",),
    "forget": ("m1",),
    "pause": (ROLLOUT,),
    "plan": ("*",),
    "report": (ROLLOUT, "page.html"),
    "resume": (ROLLOUT,),
    "retry": (ROLLOUT,),
    "rollout": ("*",),
}


def cachedir_below_a_file(opts, path):
    opts["cachedir"] = str(_file(path / "file") / "below" / "cache")


def cachedir_is_a_file(opts, path):
    opts["cachedir"] = str(_file(path / "file"))


def cachedir_leads_nowhere(opts, path):
    (path / "link").symlink_to(path / "nowhere" / "cache")
    opts["cachedir"] = str(path / "link")


def account_is_a_directory(opts, path):
    pathlib.Path(path_of(opts)).mkdir(parents=True)


def account_is_something_else(opts, path):
    _file(pathlib.Path(path_of(opts)))


def account_is_cut(opts, path):
    """Its first pages are there: what opens it finds nothing wrong."""
    _account(opts)
    os.truncate(path_of(opts), 8192)


def account_without_its_tables(opts, path):
    _account(opts)
    with contextlib.closing(sqlite3.connect(path_of(opts))) as db:
        for table in ("calls", "answers"):
            db.execute(f"DROP TABLE {table}")


def account_without_its_facts(opts, path):
    _account(opts)
    with contextlib.closing(sqlite3.connect(path_of(opts))) as db:
        db.execute("DROP TABLE facts")


def banks_are_files(opts, path):
    for bank in (MINIONS, ROLLOUTS):
        _file(pathlib.Path(opts["cachedir"], bank))


def documents_are_something_else(opts, path):
    names = [f"{ROLLOUT}.head.p", f"{ROLLOUT}.plan.p", "quarantine.p"]
    for name in names:
        _file(pathlib.Path(opts["cachedir"], ROLLOUTS, name))
    for number in range(32):
        _file(pathlib.Path(opts["cachedir"], MINIONS, f"{number}.p"))


def documents_say_something_else(opts, path):
    cache = Store(opts).cache
    for key in (f"{ROLLOUT}.head", f"{ROLLOUT}.plan", "quarantine"):
        cache.write(ROLLOUTS, key, ["a list", 1])
    cache.write(MINIONS, "0", {"a": 1})


def no_driver_of_the_cache(opts, path):
    opts["cache"] = "nosuchdriver"


def keys_are_a_file(opts, path):
    opts["pki_dir"] = str(_file(path / "file"))


def unreadable(opts, path):
    _account(opts)
    documents_are_something_else(opts, path)
    for each in (pathlib.Path(opts["cachedir"]), path):
        each.chmod(0o700)
    return _as_nobody()


def disk_is_full(opts, path):
    """Nothing can be written any more; what is there can be read."""
    _account(opts)
    return full_disk()


def account_cannot_be_made_anew(opts, path):
    """It is no database, so it is set aside; and there is no room for another one."""
    account_is_something_else(opts, path)
    return full_disk()


def a_report_is_no_text(opts, path):
    """A row says what nobody has written; the tables are as they should be."""
    _account(opts)
    with contextlib.closing(sqlite3.connect(path_of(opts), isolation_level=None)) as db:
        db.execute(
            "CREATE TRIGGER bad AFTER INSERT ON calls BEGIN UPDATE calls "
            "SET state = 'done', outcome = x'ff00' WHERE number = new.number; END"
        )


MASTERS = [
    *(cachedir_below_a_file, cachedir_is_a_file, cachedir_leads_nowhere),
    *(account_is_a_directory, account_is_something_else, account_is_cut),
    *(account_without_its_tables, account_without_its_facts),
    *(banks_are_files, documents_are_something_else, documents_say_something_else),
    *(no_driver_of_the_cache, keys_are_a_file, unreadable, disk_is_full),
    *(account_cannot_be_made_anew, a_report_is_no_text),
]


def _file(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("somebody's file")
    return path


def _account(opts):
    """Have the account of a master whose engine has run, and been killed."""
    account = Account(path_of(opts))
    account.set_fact(accounts.ENGINE, "started")
    account.published("1", b"load", ["m1"])


@contextlib.contextmanager
def _as_nobody():
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def spoil(tmp_path, monkeypatch):
    """Return a way to call a function on a master that is spoilt, each on one of its own."""
    # An engine that has died is told of at once.
    monkeypatch.setattr("saltext_safeupdate.master.calls.GONE_TIMEOUT", 0.0)
    config = tmp_path / "master"
    config.write_text("user: root\n")
    usual = salt.config.master_config(str(config))

    def call(spoilt, name):
        path = tmp_path / name
        keys = path / "pki" / "minions"
        keys.mkdir(parents=True)
        (keys / "m1").write_text("key")
        opts = dict(usual)
        opts |= {"root_dir": str(path), "cachedir": str(path / "cache")}
        opts |= {"pki_dir": str(path / "pki"), "sock_dir": str(path / "sock")}
        opts |= {"conf_file": str(path / "master"), "fun": f"safeupdate.{name}"}
        pathlib.Path(opts["cachedir"]).mkdir()
        monkeypatch.setattr(runner, "__opts__", opts, raising=False)
        monkeypatch.chdir(path)
        named = {"version": "3008.3"} if name in BRINGING else {}
        with spoilt(opts, path) or contextlib.nullcontext():
            return getattr(runner, name)(*GIVEN.get(name, ()), **named)

    return call


@pytest.mark.parametrize("spoilt", MASTERS, ids=lambda each: each.__name__)
def test_no_runner_function_shows_a_traceback(spoilt, spoil):
    if spoilt is unreadable and os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    for name in NAMES:
        # This one is shown as a line; whatever else is raised, as a traceback.
        with contextlib.suppress(errors.RefusedError):
            spoil(spoilt, name)
