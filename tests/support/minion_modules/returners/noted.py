"""A job cache, of a master or beside it: JSON lines in ``noted_jobs``, a file that opts name."""

import json
import os

import salt.utils.jid


def _note(kind, jid, value):
    with open(__opts__["noted_jobs"], "a", encoding="utf-8") as file:
        file.write(json.dumps([kind, jid, value], default=str) + "\n")


def prep_jid(nocache=False, passed_jid=None):
    return passed_jid or salt.utils.jid.gen_jid(__opts__)


def save_load(jid, clear_load, minions=None):
    _note("load", jid, clear_load)


def save_minions(jid, minions, syndic_id=None):
    pass


def get_load(jid):
    if not os.path.exists(__opts__["noted_jobs"]):
        return {}
    with open(__opts__["noted_jobs"], encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return next((value for kind, known, value in lines if (kind, known) == ("load", jid)), {})


def returner(ret):
    _note("return", ret["jid"], {name: ret.get(name) for name in ("fun", "id", "return")})
