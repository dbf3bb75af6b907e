"""Minions that this extension does not update, whatever is installed there, and why."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.errors import one_line

# How the reason begins with which the execution module does not load.
MARK = "unsupported: "
_LONGEST = 200
_PROXY = "a proxy minion has no packages of its own; update the minion of its host"


def unsupported(answer: object, grains: Mapping[str, object]) -> str:
    """
    Return why a minion that lacks our functions can never have them; empty if it can.

    *answer* is what it has said, *grains* are those that its master has of it.
    """
    if isinstance(answer, str) and MARK in answer:
        return one_line(answer.partition(MARK)[2])[:_LONGEST]
    kernel = grains.get("kernel")
    if "proxy" in (kernel, grains.get("os")) or grains.get("proxytype"):
        return _PROXY
    if not isinstance(kernel, str) or kernel in ("", "Linux"):
        return ""
    return (
        f"it runs {one_line(kernel)[:_LONGEST]}, and only packages of Linux are updated; use what "
        "installed Salt there"
    )
