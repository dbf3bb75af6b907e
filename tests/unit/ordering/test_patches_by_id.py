"""Patches of a distribution, which a call names by their IDs."""

import types

import pytest
from salt.exceptions import CommandExecutionError
from salt.modules import yumpkg, zypperpkg

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.core.packages.request import Action, Change, Request
from saltext_safeupdate.core.record.store import Quarantined
from saltext_safeupdate.ordering import package_calls
from saltext_safeupdate.ordering.own_packages import OwnPackages
from saltext_safeupdate.ordering.package_calls import Call
from saltext_safeupdate.ordering.quarantine import Refusal
from saltext_safeupdate.ordering.rest import Rest
from saltext_safeupdate.this_host import Host

VIM = {"vim": {"old": "1", "new": "2"}}
ROW = Quarantined(package="salt-minion", version="2", id="u1", reason="it did not start", at=0.0)
REFUSAL = Refusal(names=frozenset({"salt-minion"}), row=ROW)


class Patching:
    """A package manager whose patch 'sound' is about vim, and 'own' about the minion."""

    def simulate(self, request):
        patches = {
            word.partition(sign)[2]
            for sign, words in ((":", request.names), ("=", request.options))
            for word in words
        }
        if "odd" in patches:
            raise CommandError(("solve",), "exit status 4")
        brings = {"sound": "vim", "own": "salt-minion"}
        found = {brings[patch] for patch in patches if patch in brings}
        # Each needs the other, and both the minion.
        found |= {"salt-minion"} if patches >= {"half", "other half"} else set()
        return {name: Change("1", "2") for name in found}

    def without(self, packages, directory):
        return self.exclusion

    exclusion = {}


class PatchingHost(Host):
    manager = Patching()

    def own(self):
        return Own(frozenset({"salt-minion"}), False)


def calling(module, made, **given):
    """Return a call of the function of a module of Salt; *made* gets the IDs that it installs."""

    def install(name=None, pkgs=None, sources=None, **kwargs):
        made.append(kwargs["advisory_ids"] or [name])
        return VIM

    place = {**globals(), "__name__": f"salt.loaded.int.module.{module}", "VIM": VIM}
    function = types.FunctionType(
        install.__code__, place, "install", install.__defaults__, install.__closure__
    )
    return Call("pkg.install", function, (), given)


@pytest.mark.parametrize("module", ["zypperpkg", "yumpkg", "otherpkg"])
def test_a_version_in_quarantine_refuses_the_patches_that_bring_it_and_no_other(module):
    host, made = PatchingHost({"id": "minion"}), []
    rest = Rest(OwnPackages(host))
    call = calling(module, made, name="state", advisory_ids=["sound", "own", "odd"])
    request = package_calls.requested(call.fun, call.original, call.args, call.kwargs)
    known = module != "otherpkg"
    with pytest.raises(CommandExecutionError, match=r"odd, own.* was rolled back") as caught:
        rest.make(call, request, REFUSAL)
    assert made == ([["sound"]] if known else [])
    if known:
        assert caught.value.info == {"changes": VIM}
        alone = calling(module, made, name="sound", advisory_ids=None)
        assert rest.make(alone, request, REFUSAL) == VIM
        assert made == [["sound"], ["sound"]], "it has nothing to do with the minion"


@pytest.mark.parametrize("excluded", [True, False])
@pytest.mark.parametrize("module", ["zypperpkg", "yumpkg"])
def test_patches_that_bring_it_only_together_are_refused(module, excluded, monkeypatch):
    """Where the package manager cannot be told to leave a package alone, as dnf."""
    monkeypatch.setattr(Patching, "exclusion", {} if excluded else None)
    host, made = PatchingHost({"id": "minion"}), []
    rest = Rest(OwnPackages(host))
    call = calling(module, made, name="state", advisory_ids=["half", "other half"])
    request = package_calls.requested(call.fun, call.original, call.args, call.kwargs)
    if excluded:
        assert rest.make(call, request, REFUSAL) == VIM
        return
    with pytest.raises(CommandExecutionError, match="was rolled back"):
        rest.make(call, request, REFUSAL)
    assert made == []


@pytest.mark.parametrize("module", [zypperpkg, yumpkg])
@pytest.mark.parametrize(
    "given", [{"name": "state", "advisory_ids": ["one"]}, {"name": "one", "advisory_ids": None}]
)
def test_patches_are_no_packages_of_that_name(module, given):
    """The state 'pkg.patch_installed' calls the function so: at most everything is upgraded."""
    found = package_calls.requested("pkg.install", module.install, (), given)
    assert found == Request(action=Action.UPGRADE)
