"""The one command that sets a master up, on a real disk, read back by Salt itself."""

import pytest
import salt.config
import salt.utils.yaml

from saltext_safeupdate.admin.setup import master_set_up, set_up
from saltext_safeupdate.core.errors import SafeUpdateError

REDELIVER = {"safeupdate_redeliver": {"window": 600}}


class Master:
    """The configuration of a master, and its file roots."""

    def __init__(self, path):
        self.path = path
        self.etc, self.roots = path / "etc", path / "srv"
        (self.etc / "master.d").mkdir(parents=True)
        self.write("master", id="x")
        self.write("master.d/lab.conf", file_roots={"base": [str(self.roots)]})

    def write(self, name, **content):
        (self.etc / name).write_text(salt.utils.yaml.safe_dump(content))

    def opts(self):
        return salt.config.master_config(str(self.etc / "master"))

    def set_up(self, *, test=False, window=600, **opts):
        return master_set_up.carry_out(
            {**self.opts(), **opts}, window=window, config_file=None, test=test
        )

    def tree(self):
        return {path: path.is_file() and path.read_text() for path in self.path.rglob("*")}


@pytest.fixture
def master(tmp_path):
    return Master(tmp_path)


def test_it_shows_what_it_does_and_does_it_once(master):
    before = master.tree()
    would = master.set_up(test=True)
    assert (would["result"], master.tree()) == (None, before)
    done = master.set_up()
    assert done["result"] is True
    assert (
        set(done["changes"])
        == set(would["changes"])
        == {
            str(master.etc / "master.d" / "_safeupdate.conf"),
            str(master.roots / "safeupdate" / "init.sls"),
            str(master.roots / "safeupdate" / "master.sls"),
        }
    )
    assert "Restart salt-master once" in done["comment"]
    opts = master.opts()
    assert opts["engines"] == [REDELIVER]
    assert opts["peer_run"] == {".+": ["safeupdate.master_version"]}
    assert opts["file_roots"] == {"base": [str(master.roots)]}
    ours = master.etc / "master.d" / "_safeupdate.conf"
    assert ours.read_text().startswith("# Managed by salt-run safeupdate.setup.\n")
    after = master.tree()
    # The state takes over what the runner has written.
    assert set_up.master_config(str(master.etc / "master"), None, 600).changes() == {}
    again = master.set_up()
    assert (again["changes"], again["comment"]) == ({}, "The master is set up.")
    assert master.tree() == after


def test_a_master_on_which_nothing_of_it_works_is_not_called_set_up(master):
    opts = master.opts()
    for changes in (3, 0):
        told = master_set_up.carry_out(
            opts, window=600, config_file=None, test=False, unfit="'open_mode' is on."
        )
        assert (told["result"], len(told["changes"])) == (False, changes)
        assert "'open_mode' is on. As it is, nothing is published again" in told["comment"]
        assert "is set up" not in told["comment"]
        opts = master.opts()


def test_what_the_master_has_stays(master):
    master.write("master", id="x", engines=["a"], peer_run={".+": ["x.y"]}, timeout=7)
    sls = master.roots / "safeupdate" / "init.sls"
    sls.parent.mkdir(parents=True)
    sls.write_text("mine: {}\n")
    done = master.set_up()
    assert f"{sls} was written by others" in done["comment"]
    assert sls.read_text() == "mine: {}\n"
    opts = master.opts()
    assert opts["engines"] == ["a", REDELIVER]
    assert opts["peer_run"] == {".+": ["x.y", "safeupdate.master_version"]}
    assert (master.etc / "master").read_text().count("timeout") == 1


def test_the_sls_of_an_earlier_version_is_replaced(master):
    master.set_up()
    sls = master.roots / "safeupdate" / "init.sls"
    new = sls.read_text()
    sls.write_text(f"{new}# of an earlier version\n")
    done = master.set_up()
    assert list(done["changes"]) == [str(sls)]
    assert "Restart" not in done["comment"]
    assert sls.read_text() == new


@pytest.mark.parametrize("opts", [{"file_roots": {}}, {"fileserver_backend": ["gitfs"]}])
def test_without_file_roots_it_says_where_the_sls_are(master, opts):
    done = master.set_up(**opts)
    assert list(done["changes"]) == [str(master.etc / "master.d" / "_safeupdate.conf")]
    assert "file_roots/safeupdate" in done["comment"]


@pytest.mark.parametrize(
    "other",
    [
        {"master": {"include": "last.conf"}, "last.conf": {"engines": ["a"]}},
        {"master": {"peer_run": "x"}},
        {"master.d/safeupdate.conf": {"engines": ["a"]}, "master": {"default_include": "x/*"}},
    ],
)
def test_what_cannot_be_merged_is_refused_with_the_lines_to_add(master, other):
    for name, content in other.items():
        master.write(name, **content)
    if "include" in other.get("master", {}):
        master.write("last.conf", engines=["a"], file_roots={"base": [str(master.roots)]})
    before = master.tree()
    opts = {**salt.config.DEFAULT_MASTER_OPTS, "conf_file": str(master.etc / "master")}
    opts["file_roots"] = {"base": [str(master.roots)]}
    with pytest.raises(SafeUpdateError) as refused:
        master_set_up.carry_out(opts, window=600, config_file=str(master.path / "z"), test=False)
    said = str(refused.value)
    assert "\n" not in said
    assert salt.utils.yaml.safe_load(said[said.index("{engines:") :]) == {
        "engines": [REDELIVER],
        "peer_run": {".+": ["safeupdate.master_version"]},
    }
    assert master.tree() == before


@pytest.mark.parametrize("window", [0, -1, True, "x", None])
def test_a_window_that_is_none(master, window):
    with pytest.raises(SafeUpdateError, match="'window' must be"):
        master.set_up(window=window)


@pytest.mark.parametrize("name", ["engines", "peer_run"])
def test_a_file_that_hides_ours_since_then_is_told(master, name):
    master.set_up()
    others = {"engines": ["another"], "peer_run": {"web1": ["test.ping"]}}
    master.write("last.conf", **{name: others[name]})
    master.write("master", id="x", include="last.conf")
    before = master.tree()
    with pytest.raises(SafeUpdateError, match=f"'{name}' would not be what it should.* by hand"):
        master.set_up()
    assert master.tree() == before
