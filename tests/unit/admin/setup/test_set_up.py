"""The files that set a minion or a master up, on a real disk, read back by Salt itself."""

import os

import pytest
import salt.config
import salt.utils.yaml

from saltext_safeupdate.admin.setup import set_up
from saltext_safeupdate.admin.setup.ours import Ours
from saltext_safeupdate.admin.setup.set_up import SetUp
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.jobs.stop_guard import StopGuard
from tests.support.fakes import FakeRunner

OURS = {"safeupdate": {}}


class FakeGuard:
    """A stop guard of one file, which is there or not."""

    def __init__(self, drop_in):
        self._path, self.drop_in = drop_in, str(drop_in)

    def differing(self):
        return [] if self._path.exists() else [self.drop_in]

    def with_settings(self, settings):
        return self

    def install(self):
        self._path.write_text("guard")

    def remove(self):
        self._path.unlink(missing_ok=True)


class Directory:
    """A configuration directory of a minion and a master, which is not ``/etc/salt``."""

    def __init__(self, path):
        self.path = path
        for name in ("minion.d", "master.d"):
            (path / name).mkdir(parents=True)
        self.ours = path / "minion.d" / "_safeupdate.conf"
        self.stand_ins = path.with_name(f"{path.name}-safeupdate") / "minion"
        self.masters = path / "master.d" / "_safeupdate.conf"
        self.write("master.d/id.conf", id="x")

    def write(self, name, **content):
        (self.path / name).write_text(salt.utils.yaml.safe_dump(content))

    def minion(self):
        """Return what a minion makes of it."""
        found = salt.config.minion_config(str(self.path / "minion"), minion_id="x")
        return found.get("module_executors"), found.get("engines")

    def master(self):
        found = salt.config.master_config(str(self.path / "master"))
        return found.get("engines"), found.get("peer_run")


@pytest.fixture
def config(tmp_path):
    return Directory(tmp_path / "etc")


@pytest.fixture
def made(made, tmp_path, config):
    made.stop_guard = FakeGuard(tmp_path / "guard.conf")
    made.opts = {
        **salt.config.DEFAULT_MINION_OPTS,
        **made.opts,
        "conf_file": str(config.path / "minion"),
        "extension_modules": str(tmp_path / "extmods"),
        "grains": {"id": "minion"},
    }
    return made


@pytest.fixture
def enable(made):
    """Apply the state; return whether it changed the configuration."""

    def apply(path=None):
        wanted = SetUp(made, path, True)
        wanted.carry_out()
        assert SetUp(made, path, True).changes() == {}
        return wanted.restarts

    return apply


@pytest.fixture
def enable_master(made):
    def apply(**given):
        arguments = {"main_file": None, "path": None, "window": 600, **given}
        wanted = set_up.master_file(made, **arguments)
        changed = wanted.differs
        wanted.write()
        assert not set_up.master_file(made, **arguments).differs
        return changed

    return apply


class TestMinion:
    def test_a_minion_that_has_nothing(self, config, enable):
        assert enable()
        assert config.minion() == (["safeupdate", "direct_call"], [OURS])

    @staticmethod
    def _read(made, config):
        """Be a minion that has read its configuration."""
        read = salt.config.minion_config(str(config.path / "minion"), minion_id="x")
        names = ("module_executors", "engines", *set_up.OPTIONS, "safeupdate")
        made.opts = {**made.opts, **{name: read[name] for name in names if name in read}}

    @pytest.mark.parametrize(
        ("restarted", "settings", "restarts"),
        [
            pytest.param(True, {"jobs_timeout": 60}, False, id="read before it was removed"),
            pytest.param(True, {"jobs_timeout": 90}, True, id="other settings"),
            pytest.param(False, {"jobs_timeout": 60}, True, id="never read"),
        ],
    )
    def test_a_run_that_owns_the_directory_removes_the_file(
        self, made, config, restarted, settings, restarts
    ):
        """A clean ``file.recurse`` beside the state would else restart it at every highstate."""
        SetUp(made, None, True, {"jobs_timeout": 60}).carry_out()
        if restarted:
            self._read(made, config)
        config.ours.unlink()
        wanted = SetUp(made, None, True, settings)
        assert wanted.changes()
        assert wanted.restarts is restarts
        wanted.carry_out()
        assert config.minion() == (["safeupdate", "direct_call"], [OURS])

    @pytest.mark.parametrize(
        ("engines", "expected"),
        [
            (["a", {"b": {"c": 1}}], ["a", {"b": {"c": 1}}, OURS]),
            ({"a": {"c": 1}, "b": None}, {"a": {"c": 1}, "b": None, "safeupdate": {}}),
            (None, [OURS]),
        ],
    )
    def test_what_the_main_file_lists_stays(self, config, enable, engines, expected):
        config.write("minion", engines=engines, module_executors=["splay", "direct_call"])
        enable()
        assert config.minion() == (["safeupdate", "splay", "direct_call"], expected)

    def test_what_is_added_to_the_main_file_later_is_there_after_the_next_run(self, config, enable):
        config.write("minion", engines=["a"])
        enable()
        config.write("minion", engines=["a", "b"], module_executors=["splay", "direct_call"])
        assert enable()
        assert config.minion() == (["safeupdate", "splay", "direct_call"], ["a", "b", OURS])

    def test_what_is_removed_from_the_main_file_is_removed(self, config, enable, made):
        config.write("minion", engines=["a", "b"])
        enable()
        config.write("minion", engines=["b"])
        (warning,) = SetUp(made, None, True).warnings
        assert "engines: a" in warning
        enable()
        assert config.minion()[1] == ["b", OURS]

    @pytest.mark.parametrize("name", ["a.conf", "z.conf"])
    @pytest.mark.parametrize(
        ("engines", "expected"), [(["a"], ["a", OURS]), ({"a": None}, {"a": None, **OURS})]
    )
    def test_lists_of_other_included_files_are_merged_and_not_repeated(
        self, config, enable, name, engines, expected
    ):
        config.write("minion", engines=["hidden by the administrator"])
        config.write(f"minion.d/{name}", engines=engines)
        enable()
        found = config.minion()[1]
        if isinstance(expected, list):
            assert sorted(map(str, found)) == sorted(map(str, expected))
        else:
            assert found == expected
        assert salt.utils.yaml.safe_load(config.ours.read_text())["engines"] in ([OURS], OURS)

    def test_executors_of_a_later_file_are_merged(self, config, enable):
        config.write("minion.d/z.conf", module_executors=["splay", "direct_call"])
        enable()
        assert config.minion()[0] == ["safeupdate", "splay", "direct_call"]

    @pytest.mark.parametrize(
        "other",
        [
            {"minion.d/00.conf": {"module_executors": ["direct_call"]}},
            {"minion.d/z.conf": {"module_executors": "direct_call"}},
            {"minion": {"include": "last.conf"}, "last.conf": {"engines": ["a"]}},
            {
                "minion": {"include": "last.conf"},
                "last.conf": {"module_executors": ["direct_call"]},
            },
        ],
    )
    def test_it_refuses_to_write_what_another_file_would_hide_or_precede(self, config, made, other):
        for name, content in other.items():
            config.write(name, **content)
        before = config.minion()
        with pytest.raises(SafeUpdateError, match=r"Nothing was written\. Add .* by hand"):
            SetUp(made, None, True)
        assert config.minion() == before

    @pytest.mark.parametrize(
        "broken",
        [
            {"module_executors": "[direct_call]"},
            {"module_executors": list("[direct_call]")},
            {"module_executors": ["direct_call", "no_such_executor"]},
            {"module_executors": [{"direct_call": {}}]},
            {"engines": list("[a]")},
            {"engines": "safeupdate"},
            {"engines": [{"a": 1, "b": 2}]},
        ],
    )
    def test_lists_that_salt_cannot_use_are_refused(self, config, made, broken):
        config.write("minion", **broken)
        with pytest.raises(SafeUpdateError, match=r"cannot use.*Nothing was written"):
            SetUp(made, None, True)
        assert not config.ours.exists()

    def test_the_options_of_the_process_do_not_count(self, config, enable, made):
        made.opts |= {"module_executors": "[direct_call]", "engines": ["of the command line"]}
        enable()
        assert config.minion() == (["safeupdate", "direct_call"], [OURS])

    def test_a_set_up_by_hand_is_left_alone(self, config, made):
        config.write(
            "minion", module_executors=["splay", "safeupdate", "direct_call"], engines=[OURS]
        )
        before = config.minion()
        wanted = SetUp(made, None, True)
        # Only what stands in for a package that is gone is added.
        assert wanted.changes()[str(config.ours)]["new"].keys() == {"executor_dirs", "engines_dirs"}
        wanted.carry_out()
        assert config.minion() == before

    def test_the_file_of_an_earlier_version_stays_until_a_run_removes_it(self, made, config):
        earlier = config.path / "minion.d" / "safeupdate.conf"
        SetUp(made, str(earlier), True).carry_out()
        self._read(made, config)
        assert SetUp(made, None, True).changes() == {}
        restarts = []
        for removed in (earlier, config.ours):
            removed.unlink()
            wanted = SetUp(made, None, True)
            restarts.append(wanted.restarts)
            wanted.carry_out()
            assert config.ours.exists()
            self._read(made, config)
        # The second time, everything is as the minion has read it.
        assert restarts == [True, False]

    def test_nothing_is_written_where_others_could_have_made_it(self, made, config):
        config.path.parent.chmod(0o777)
        SetUp(made, None, True).carry_out()
        assert sorted(os.listdir(config.path / "minion.d")) == [".safeupdate.d", "safeupdate.conf"]
        assert not config.stand_ins.parent.exists()

    def test_a_file_of_the_administrator_is_not_replaced(self, config, enable, made):
        config.write("minion.d/_safeupdate.conf", safeupdate={"watch_timeout": 60})
        with pytest.raises(SafeUpdateError, match="was not written by this state"):
            SetUp(made, str(config.ours), True)
        enable()
        found = salt.config.minion_config(str(config.path / "minion"), minion_id="x")
        assert found["safeupdate"] == {"watch_timeout": 60}
        assert config.minion() == (["safeupdate", "direct_call"], [OURS])

    def test_what_was_added_to_our_file_stays(self, config, enable):
        enable()
        text = config.ours.read_text()
        config.ours.write_text(f"{text}safeupdate:\n  watch_timeout: 60\n")
        config.write("minion", engines=["a"])
        enable()
        assert salt.utils.yaml.safe_load(config.ours.read_text())["safeupdate"] == {
            "watch_timeout": 60
        }

    @pytest.mark.parametrize("include", ["conf.d/*.conf", "{etc}/conf.d/*.conf", ["x", "conf.d/*"]])
    def test_the_directory_that_the_minion_includes(self, config, enable, include):
        (config.path / "conf.d").mkdir()
        if isinstance(include, str):
            include = include.format(etc=config.path)
        config.write("minion", default_include=include)
        enable()
        assert config.minion() == (["safeupdate", "direct_call"], [OURS])
        assert (config.path / "conf.d" / "_safeupdate.conf").exists()

    @pytest.mark.parametrize(
        ("include", "path"), [("", None), ("x/only.conf", None), (None, "minion"), (None, "x/y")]
    )
    def test_a_file_that_would_not_be_read_is_refused(self, config, made, include, path):
        if include is not None:
            config.write("minion", default_include=include)
        given = str(config.path / path) if path else None
        with pytest.raises(SafeUpdateError, match="Nothing was written"):
            SetUp(made, given, True)

    def test_another_name(self, config, enable):
        enable(str(config.path / "minion.d" / "00-ours.conf"))
        assert config.minion() == (["safeupdate", "direct_call"], [OURS])
        config.write("minion", engines=["a"])
        # Found again without being named.
        enable()
        assert config.minion()[1] == ["a", OURS]
        assert not config.ours.exists()

    def test_a_broken_file_is_named(self, config, made):
        (config.path / "minion.d" / "broken.conf").write_text("a: [")
        with pytest.raises(SafeUpdateError, match=r"broken\.conf cannot be read"):
            SetUp(made, None, True)

    def test_it_is_no_more_readable_than_the_main_file(self, config, enable):
        config.write("minion", engines=[{"a": {"token": "secret"}}])
        (config.path / "minion").chmod(0o640)
        enable()
        assert config.ours.stat().st_mode & 0o777 == 0o640

    def test_no_value_of_an_engine_is_shown(self, config, made):
        config.write("minion", engines=[{"a": {"token": "secret"}}, {"b": {"token": "secret"}}])
        wanted = SetUp(made, None, True)
        (change,) = [each for path, each in wanted.changes().items() if path == str(config.ours)]
        assert change == {
            "old": {},
            "new": {
                "module_executors": ["safeupdate", "direct_call"],
                "engines": ["a", "b", "safeupdate"],
                "executor_dirs": [str(config.stand_ins / "executor")],
                "engines_dirs": [str(config.stand_ins / "engines")],
            },
        }
        wanted.carry_out()
        config.write("minion", engines=[{"a": {"token": "secret"}}])
        gone = SetUp(made, None, True)
        assert "secret" not in str((gone.warnings, gone.changes()))
        config.write("last.conf", engines=[{"a": {"token": "secret"}}])
        config.write("minion", include="last.conf", engines=[{"b": {"token": "secret"}, "c": 1}])
        with pytest.raises(SafeUpdateError) as hidden:
            SetUp(made, None, True)
        config.write("minion", engines=[{"b": {"token": "secret"}, "c": 1}])
        with pytest.raises(SafeUpdateError) as malformed:
            SetUp(made, None, True)
        assert "secret" not in f"{hidden.value} {malformed.value}"

    def test_a_configuration_that_cannot_be_written_is_an_error(self, made, config):
        wanted = SetUp(made, None, False)
        (config.path / "minion.d").rmdir()
        (config.path / "minion.d").touch()
        with pytest.raises(SafeUpdateError, match="The configuration is as it was"):
            wanted.carry_out()


class TestStandIns:
    def directories(self, config):
        found = salt.config.minion_config(str(config.path / "minion"), minion_id="x")
        return found.get("executor_dirs"), found.get("engines_dirs")

    def test_salt_looks_for_them_where_they_are(self, config, enable):
        enable()
        executors, engines = self.directories(config)
        assert (executors, engines) == (
            [str(config.stand_ins / "executor")],
            [str(config.stand_ins / "engines")],
        )
        assert sorted(path.name for path in config.stand_ins.rglob("*.py")) == [
            "safeupdate_engine.py",
            "safeupdate_executor.py",
            "transactional_update_executor.py",
        ]

    def test_directories_of_the_main_file_stay(self, config, enable):
        config.write("minion", engines_dirs=["/a"], executor_dirs=["/b"])
        enable()
        executors, engines = self.directories(config)
        assert (executors[:1], engines[:1]) == (["/b"], ["/a"])
        assert len(executors) == len(engines) == 2

    def test_what_differs_is_written_again_without_a_restart(self, config, enable, made):
        enable()
        (config.stand_ins / "executor" / "safeupdate_executor.py").write_text("")
        (config.stand_ins / "engines" / "safeupdate_engine.py").unlink()
        wanted = SetUp(made, None, True)
        assert (list(wanted.changes()), wanted.restarts) == ([str(config.stand_ins)], False)
        wanted.carry_out()
        assert SetUp(made, None, True).changes() == {}

    def test_a_directory_that_another_file_would_hide_is_refused(self, config, made):
        config.write("minion", include="last.conf")
        config.write("last.conf", executor_dirs=["/b"])
        with pytest.raises(SafeUpdateError, match=r"'executor_dirs'.*hidden by another file"):
            SetUp(made, None, True)


class TestSettings:
    @pytest.fixture
    def made(self, made):
        made.stop_guard = None
        return made

    @pytest.fixture
    def enable(self, made, config):
        """Apply the state with settings; return what the minion makes of it."""

        def apply(settings):
            SetUp(made, None, True, settings).carry_out()
            assert SetUp(made, None, True, settings).changes() == {}
            found = salt.config.minion_config(str(config.path / "minion"), minion_id="x")
            return found.get("safeupdate")

        return apply

    def test_they_come_and_go_and_stay_if_nothing_is_said_of_them(self, config, enable):
        assert enable({"attempts": 3, "packages": ["a", "b"]}) == {
            "attempts": 3,
            "packages": ["a", "b"],
        }
        assert enable(None) == {"attempts": 3, "packages": ["a", "b"]}
        assert enable({"attempts": 4}) == {"attempts": 4}
        assert enable({}) is None

    def test_those_of_the_main_file_stay_and_are_taken_over_when_they_change(self, config, enable):
        config.write("minion", safeupdate={"step_timeout": 5, "attempts": 1})
        assert enable({"attempts": 3}) == {"step_timeout": 5, "attempts": 3}
        config.write("minion", safeupdate={"watch_timeout": 6})
        assert enable(None) == {"watch_timeout": 6, "attempts": 3}
        assert enable({}) == {"watch_timeout": 6}
        assert "safeupdate:\n" not in config.ours.read_text()

    def test_what_others_say_already_is_not_written(self, config, enable):
        config.write("minion.d/a.conf", safeupdate={"attempts": 3})
        assert enable({"attempts": 3}) == {"attempts": 3}
        assert "attempts" not in config.ours.read_text()

    def test_what_was_added_to_our_file_by_hand_stays(self, config, enable):
        enable({"attempts": 3})
        said = config.ours.read_text().replace("attempts: 3", "attempts: 3\n  step_timeout: 7")
        config.ours.write_text(said)
        assert enable({"watch_timeout": 8}) == {"watch_timeout": 8, "step_timeout": 7}
        assert enable({}) == {"step_timeout": 7}

    @pytest.mark.parametrize(
        "other",
        [
            {"minion.d/z.conf": {"safeupdate": {"attempts": 9}}},
            {"minion.d/a.conf": {"safeupdate": {"packages": ["x"]}}},
            {"minion": {"include": "last.conf"}, "last.conf": {"safeupdate": {"attempts": 9}}},
        ],
    )
    def test_what_another_file_would_override_is_refused(self, config, made, other):
        for name, content in other.items():
            config.write(name, **content)
        with pytest.raises(SafeUpdateError, match=r"Nothing was written\. Add .* by hand"):
            SetUp(made, None, True, {"attempts": 3, "packages": ["a"]})
        assert not config.ours.exists()

    def test_a_change_shows_its_values_but_no_secret(self, made, config):
        wanted = SetUp(made, None, True, {"attempts": 3, "health_check": ["/bin/x", "--secret"]})
        assert wanted.changes()[str(config.ours)]["new"]["safeupdate"] == [
            "attempts: 3",
            "health_check",
        ]

    def test_the_stop_guard_and_the_jitter_are_those_of_the_new_settings(
        self, made, tmp_path, config
    ):
        run = FakeRunner({("systemctl", "daemon-reload"): (0, "", "")})
        config.write("minion", safeupdate=made.opts["safeupdate"])
        made.stop_guard = StopGuard(made.settings, run=run, units=str(tmp_path / "units"))
        wanted = SetUp(made, None, True, {"stop_timeout": 77, "restart_jitter": 300})
        wanted.carry_out()
        drop_in = tmp_path / "units" / "salt-minion.service.d" / "50-safeupdate-guard.conf"
        assert " 77 " in drop_in.read_text()
        assert wanted.jitter == 300

    def test_they_go_with_the_set_up(self, config, enable, made):
        config.write("minion", safeupdate={"step_timeout": 5})
        enable({"attempts": 3})
        Ours(set_up.minion_files(made)).take_away()
        assert not config.ours.exists()


class TestStopGuard:
    def test_nothing_is_written_before_it_is_carried_out(self, made, config):
        wanted = SetUp(made, None, True)
        assert wanted.restarts
        ours = {str(config.ours), str(config.stand_ins)}
        assert set(wanted.changes()) == {*ours, made.stop_guard.drop_in}
        assert not config.stand_ins.exists()
        assert set(SetUp(made, None, True).changes()) == set(wanted.changes())
        wanted.carry_out()
        again = SetUp(made, None, True)
        assert (again.changes(), again.restarts) == ({}, False)

    def test_the_stop_guard_alone_needs_no_restart(self, made):
        SetUp(made, None, False).carry_out()
        wanted = SetUp(made, None, True)
        assert (list(wanted.changes()), wanted.restarts) == ([made.stop_guard.drop_in], False)

    def test_a_stop_guard_that_is_not_wanted_is_removed(self, made):
        SetUp(made, None, True).carry_out()
        wanted = SetUp(made, None, False)
        assert wanted.changes() == {made.stop_guard.drop_in: {"old": "stop guard", "new": ""}}
        wanted.carry_out()
        assert SetUp(made, None, False).changes() == {}

    @pytest.mark.parametrize("guarded", [True, False])
    def test_a_host_without_systemd_has_no_stop_guard(self, made, config, guarded):
        made.stop_guard = None
        wanted = SetUp(made, None, guarded)
        assert list(wanted.changes()) == [str(config.ours), str(config.stand_ins)]
        wanted.carry_out()
        assert SetUp(made, None, guarded).changes() == {}


class TestMaster:
    VERSION = "safeupdate.master_version"
    REDELIVER = {"safeupdate_redeliver": {"window": 600}}

    def test_a_master_that_has_nothing(self, config, enable_master):
        assert enable_master()
        assert config.master() == ([self.REDELIVER], {".+": [self.VERSION]})

    def test_what_the_main_file_allows_and_starts_stays(self, config, enable_master):
        config.write("master", engines=["a"], peer_run={".*": ["x.y"], ".+": ["z.w"]})
        enable_master()
        assert config.master() == (
            ["a", self.REDELIVER],
            {".*": ["x.y"], ".+": ["z.w", self.VERSION]},
        )
        config.write("master", engines=["a", "b"], peer_run={"web.*": ["x.y"]})
        assert enable_master()
        assert config.master() == (
            ["a", "b", self.REDELIVER],
            {"web.*": ["x.y"], ".+": [self.VERSION]},
        )

    def test_other_included_files_are_merged(self, config, enable_master):
        config.write("master.d/a.conf", engines=["a"], peer_run={".+": ["x.y"]})
        enable_master()
        assert config.master() == ([self.REDELIVER, "a"], {".+": [self.VERSION, "x.y"]})

    def test_what_is_set_up_by_hand_is_left_alone(self, config, made):
        config.write("master", engines=["safeupdate_redeliver"], peer_run={".+": [self.VERSION]})
        assert not set_up.master_file(made, None, None, 600).differs

    def test_another_main_file(self, config, enable_master):
        (config.path / "other").mkdir()
        (config.path / "other" / "master.d").mkdir()
        enable_master(main_file=str(config.path / "other" / "master"))
        assert (config.path / "other" / "master.d" / "_safeupdate.conf").exists()
        assert not config.masters.exists()

    @pytest.mark.parametrize("peers", ["x", {".+": "x.y"}])
    def test_permissions_that_salt_cannot_use_are_refused(self, config, made, peers):
        config.write("master", peer_run=peers)
        with pytest.raises(SafeUpdateError, match="cannot use"):
            set_up.master_file(made, None, None, 600)

    @pytest.mark.parametrize("window", [0, -1, True, "x", None])
    def test_a_window_that_is_none(self, made, window):
        with pytest.raises(SafeUpdateError, match="'window' must be"):
            set_up.master_file(made, None, None, window)
