"""
A rollout as one HTML page that needs nothing else: no network, no other file.

Names and reasons come from minions, so they are data in it and never markup: the page writes
them as text, and its policy lets no script run but its own.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
from dataclasses import asdict
from typing import Any

from ..core import times
from . import durations, summary
from .rollout import Rollout

# By this a page is known as one of ours.
MARK = '<meta name="generator" content="saltext-safeupdate: report of a rollout">'


def data(rollout: Rollout, now: float, zone: object = times.UTC) -> dict[str, Any]:
    """Return all that the page shows, with times in that zone; see :func:`.times.zone`."""
    history = [list(line) for line in rollout.history]
    found = summary.summary(rollout, now)
    told = times.beside({**found, "history": history}, summary.TIMES, zone)
    return {
        "summary": {**found, "times": told["times"]},
        "minions": summary.rows(rollout),
        "elapsed": rollout.elapsed,
        "durations": {
            phase: asdict(usual)
            for phase, usual in durations.by_phase(rollout.minions.values()).items()
        },
        "left_out": dict(rollout.plan.left_out),
        "history": history,
    }


def page(rollout: Rollout, now: float, zone: object = times.UTC) -> str:
    """Return the page, with times in that zone; see :func:`.times.zone`."""
    style, script, frame = (_part(f"report.{kind}") for kind in ("css", "js", "html"))
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # In a script element only "<" can end what is data.
    told = json.dumps(data(rollout, now, zone), separators=(",", ":")).replace("<", "\\u003c")
    parts = {"POLICY": policy, "STYLE": style, "SCRIPT": script, "DATA": told}
    for name, text in parts.items():
        frame = frame.replace(f"@{name}@", text, 1)
    return frame


def _part(name: str) -> str:
    return (importlib.resources.files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
