"""The states, on what the execution module says."""

import pytest
import salt.config
import salt.utils.yaml
from salt.exceptions import CommandExecutionError
from salt.utils.context import func_globals_inject

from saltext_safeupdate import this_host
from saltext_safeupdate.admin.updates import inside, steering
from saltext_safeupdate.states import safeupdate as module
from tests.support.this_host import opts, simulated

CHANGES = {"salt-minion": {"old": "3007.15", "new": "3008.3"}}


@pytest.fixture
def functions(monkeypatch):
    found = {
        "safeupdate.plan": lambda *args, **kwargs: {"changes": CHANGES, "findings": []},
        "safeupdate.update": lambda *args, **kwargs: {"comment": "under way"},
    }
    monkeypatch.setattr(module, "__salt__", found, raising=False)
    monkeypatch.setattr(module, "__opts__", {"test": False}, raising=False)
    return found


class TestUpdated:
    def test_it_asks_for_what_is_not_there(self, functions):
        asked = []
        functions["safeupdate.update"] = lambda *args, **kwargs: (
            asked.append((args, kwargs)) or {"comment": "under way"}
        )
        ret = module.updated("x", "3008.3", allow_downgrade=True)
        assert ret == {"name": "x", "result": True, "changes": CHANGES, "comment": "under way"}
        assert asked == [(("3008.3",), {"allow_downgrade": True})]

    def test_it_changes_nothing_in_test_mode(self, functions):
        module.__opts__["test"] = True
        functions["safeupdate.update"] = lambda *args, **kwargs: pytest.fail("asked")
        ret = module.updated("x")
        assert (ret["result"], ret["changes"]) == (None, CHANGES)

    def test_what_is_installed_is_no_change(self, functions):
        functions["safeupdate.plan"] = lambda *args, **kwargs: {"changes": {}, "findings": []}
        functions["safeupdate.update"] = lambda *args, **kwargs: pytest.fail("asked")
        ret = module.updated("x")
        assert (ret["result"], ret["changes"]) == (True, {})

    def test_what_waits_for_a_reboot_is_no_change_either(self, functions):
        found = {"changes": {}, "findings": [], "reboot": True}
        functions["safeupdate.plan"] = lambda *args, **kwargs: found
        ret = module.updated("x")
        assert (ret["result"], ret["comment"]) == (True, "It is installed; a reboot activates it.")

    @pytest.mark.parametrize("blocking", [True, False])
    def test_what_speaks_against_it(self, functions, blocking):
        finding = {
            "code": "quarantined",
            "problem": "It was rolled back.",
            "fix": "Find out why.",
            "blocking": blocking,
        }
        functions["safeupdate.plan"] = lambda *args, **kwargs: {
            "changes": CHANGES,
            "findings": [finding],
        }
        ret = module.updated("x")
        assert ret["result"] is not blocking
        if blocking:
            assert ret["comment"] == (
                "[quarantined] It was rolled back. Find out why. Nothing was changed."
            )
            assert ret["changes"] == {}

    def test_an_update_that_is_refused(self, functions):
        def refuse(*args, **kwargs):
            raise CommandExecutionError("Another update is under way.")

        functions["safeupdate.update"] = refuse
        ret = module.updated("x")
        assert (ret["result"], ret["changes"]) == (False, {})
        assert ret["comment"] == "Another update is under way."


class TestEnabled:
    @pytest.fixture
    def minion(self, functions, monkeypatch, tmp_path):
        """A minion that is not set up; what it is asked for is in ``asked``."""
        made = simulated(
            {
                **salt.config.DEFAULT_MINION_OPTS,
                **opts(tmp_path),
                "conf_file": str(tmp_path / "etc" / "minion"),
                "extension_modules": str(tmp_path / "extmods"),
                "test": False,
            }
        )
        made.asked, made.config = [], tmp_path / "etc" / "minion.d" / "_safeupdate.conf"
        made.stand_ins = tmp_path / "etc-safeupdate" / "minion"
        (tmp_path / "etc").mkdir()
        monkeypatch.setattr(module, "__opts__", made.opts, raising=False)
        monkeypatch.setattr(this_host, "Host", lambda _: made)
        functions["safeupdate.status"] = lambda: {"phase": "idle", "reason": ""}
        functions["safeupdate.restart"] = lambda reason, jitter: (
            made.asked.append(reason) or {"comment": "The minion restarts as soon as it can."}
        )
        return made

    def test_it_writes_the_configuration_and_asks_for_a_restart(self, minion):
        ret = module.enabled("x")
        assert ret["result"] is True
        assert list(ret["changes"]) == [str(minion.config), str(minion.stand_ins)]
        assert "engines:" in minion.config.read_text()
        assert minion.asked == ["safeupdate.enabled"]
        assert "The minion restarts as soon as" in ret["comment"]

    def test_settings_of_the_pillar_and_those_that_are_given(self, minion):
        said = {"attempts": 3, "step_timeout": 5, "redeliver_window": 60}
        minion.opts["pillar"] = {"safeupdate": said}
        ret = module.enabled("x", settings={"attempts": 4})
        assert ret["result"] is True
        said = salt.utils.yaml.safe_load(minion.config.read_text())["safeupdate"]
        assert said == {"attempts": 4, "step_timeout": 5}

    @pytest.mark.parametrize(
        "settings", [{"no_such_key": 1}, {"attempts": "many"}, {"attempts": 0}, ["attempts"], 5]
    )
    @pytest.mark.parametrize("by", ["given", "pillar"])
    def test_settings_that_are_not_valid_are_an_error(self, minion, settings, by):
        if by == "pillar":
            minion.opts["pillar"] = {"safeupdate": settings}
        ret = module.enabled("x", settings=settings if by == "given" else None)
        assert (ret["result"], ret["changes"], minion.asked) == (False, {}, [])
        assert "Nothing was written" in ret["comment"]
        assert not minion.config.exists()

    def test_what_is_set_up_is_no_change(self, minion):
        module.enabled("x")
        ret = module.enabled("x")
        assert (ret["result"], ret["changes"], minion.asked) == (True, {}, ["safeupdate.enabled"])

    def test_it_changes_nothing_in_test_mode(self, minion):
        minion.opts["test"] = True
        ret = module.enabled("x")
        wanted = [str(minion.config), str(minion.stand_ins)]
        assert (ret["result"], list(ret["changes"])) == (None, wanted)
        assert "would restart" in ret["comment"]
        assert not minion.config.exists()
        assert minion.asked == []

    def test_what_cannot_be_written_is_an_error(self, minion):
        minion.config.parent.touch()
        ret = module.enabled("x")
        assert (ret["result"], ret["changes"]) == (False, {})
        assert "cannot be" in ret["comment"]
        assert minion.asked == []

    @pytest.mark.parametrize("phase", ["failed", "rolled_back"])
    def test_a_last_update_that_went_wrong_is_a_warning(self, minion, functions, phase):
        functions["safeupdate.status"] = lambda: {"phase": phase, "reason": "no space"}
        (warning,) = module.enabled("x")["warnings"]
        assert phase in warning
        assert "no space" in warning

    def test_what_is_not_listed_any_more_is_a_warning(self, minion):
        main = minion.config.parent.parent / "minion"
        main.write_text("engines: [a]")
        module.enabled("x")
        main.write_text("{}")
        (warning,) = module.enabled("x")["warnings"]
        assert "engines: a" in warning

    def test_a_configuration_that_salt_cannot_use_is_an_error(self, minion):
        (minion.config.parent.parent / "minion").write_text("module_executors: '[direct_call]'")
        ret = module.enabled("x")
        assert (ret["result"], ret["changes"], minion.asked) == (False, {}, [])
        assert "Nothing was written" in ret["comment"]

    @pytest.fixture
    def master(self, minion):
        return minion.config.parent.parent / "master.d" / "_safeupdate.conf"

    def test_a_master_is_set_up_beside_the_minion(self, minion, master):
        ret = module.master_enabled("x", window=60)
        assert (ret["result"], list(ret["changes"])) == (True, [str(master)])
        assert "Restart salt-master once" in ret["comment"]
        assert "window: 60" in master.read_text()
        ret = module.master_enabled("x", window=60)
        assert (ret["result"], ret["changes"]) == (True, {})

    def test_nothing_is_written_for_a_master_in_test_mode(self, minion, master):
        minion.opts["test"] = True
        ret = module.master_enabled("x")
        assert (ret["result"], list(ret["changes"])) == (None, [str(master)])
        assert not master.exists()

    def test_what_a_master_cannot_use_is_an_error(self, minion, master):
        assert module.master_enabled("x", window=0)["result"] is False
        assert not master.exists()


class TestRestarted:
    @pytest.fixture
    def asked(self, functions, monkeypatch):
        found = []
        monkeypatch.setattr(steering, "restart_after_run", lambda reason: False)
        functions["safeupdate.restart"] = lambda reason: (
            found.append(reason) or {"comment": "The minion restarts."}
        )
        return found

    def test_outside_of_a_state_run_it_asks_at_once(self, asked):
        ret = module.mod_watch("x")
        assert (ret["result"], ret["changes"]) == (True, {"restart": "deferred"})
        assert ret["comment"] == "The minion restarts."
        assert asked == ["state x"]

    def test_in_a_state_run_the_run_asks_at_its_end(self, asked, monkeypatch):
        reasons = []
        monkeypatch.setattr(
            steering, "restart_after_run", lambda reason: reasons.append(reason) or True
        )
        assert module.mod_watch("x")["result"] is True
        assert (reasons, asked) == (["state x"], [])

    def test_it_asks_for_nothing_in_test_mode(self, asked):
        module.__opts__["test"] = True
        ret = module.mod_watch("x")
        assert (ret["result"], ret["comment"]) == (None, "The minion would restart.")
        assert asked == []

    def test_by_itself_it_does_nothing(self, asked):
        ret = module.restarted("x")
        assert (ret["result"], ret["changes"], asked) == (True, {}, [])


def test_what_salt_tells_a_state_of_its_run_reaches_it(monkeypatch):
    """Inside a transaction, what becomes of the update stands under the state's ID."""
    asked = []
    monkeypatch.setattr(module, "__opts__", {"test": False}, raising=False)
    monkeypatch.setattr(inside, "here", lambda: True)
    monkeypatch.setattr(inside, "update_asked", lambda low, *_, **__: asked.append(low) or {})
    # As Salt does it: into the globals of the function that the loader has.
    with func_globals_inject(module.updated, __low__={"__id__": "x"}):
        module.updated("x")
    assert asked == [{"__id__": "x"}]
