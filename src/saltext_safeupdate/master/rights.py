"""Whether whoever has published a job may still do so when it goes out again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

# The options of a master that say who may publish what.
_OPTIONS = (
    *("publisher_acl", "publisher_acl_blacklist", "sudo_acl", "permissive_acl", "external_auth"),
    *("eauth_acl_module", "auth.enable_expanded_auth_matching", "nodegroups", "user"),
)


def of(config: str, clear_load: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    """
    Return by which right a publication came, as text without secrets.

    *config* is of :func:`config_of`, the rest is as Salt has it when it has let a publication pass.
    Salt looks for a token first, then for the name of an ``eauth``; otherwise somebody had the key
    of a user of the host.
    """
    found = {"config": config}
    if "token" in extra:
        found["token"] = _digest(str(extra["token"]))
    elif "eauth" in extra:
        found |= {"eauth": str(extra["eauth"]), "name": str(clear_load.get("user", ""))}
    return json.dumps(found, separators=(",", ":"))


def still_holds(right: str, master: Any, load: Mapping[str, Any], minions: Iterable[str]) -> bool:
    """
    Tell whether the publication *load* may still be published by that right, to these minions.

    Salt itself decides again, without the password: an ``eauth`` that cannot tell the rights of a
    user without one says that he has none. *master* is Salt's ``ClearFuncs``.
    """
    how = json.loads(right)
    if how["config"] != config_of(master.opts):
        return False
    if "token" in how:
        known = [each for each in master.loadauth.list_tokens() if _digest(each) == how["token"]]
        token = master.loadauth.get_tok(known[0]) if known else None
        allowed = master.loadauth.get_auth_list(token, token) if token else None
    elif "eauth" in how:
        said = {"eauth": how["eauth"], "username": how["name"]}
        allowed = master.loadauth.get_auth_list(said)
    else:
        return True
    about = (load["fun"], load["arg"], load["tgt"], load["tgt_type"])
    return bool(allowed) and bool(
        master.ckminions.auth_check(allowed, *about, minions=list(minions))
    )


def config_of(opts: Mapping[str, Any]) -> str:
    """Return what changes if the configuration gives other rights."""
    said = {name: opts.get(name) for name in _OPTIONS}
    # Each publication has it; nobody gains from two that are the same.
    return _digest(json.dumps(said, sort_keys=True, default=str))[:12]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
