"""The states, on what the execution module says."""

import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.states import safeupdate as module

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
        finding = {"code": "quarantined", "problem": "It was rolled back.", "blocking": blocking}
        functions["safeupdate.plan"] = lambda *args, **kwargs: {
            "changes": CHANGES,
            "findings": [finding],
        }
        ret = module.updated("x")
        assert ret["result"] is not blocking
        if blocking:
            assert ret["comment"] == "It was rolled back."
            assert ret["changes"] == {}

    def test_an_update_that_is_refused(self, functions):
        def refuse(*args, **kwargs):
            raise CommandExecutionError("Another update is under way.")

        functions["safeupdate.update"] = refuse
        ret = module.updated("x")
        assert (ret["result"], ret["changes"]) == (False, {})
        assert ret["comment"] == "Another update is under way."
