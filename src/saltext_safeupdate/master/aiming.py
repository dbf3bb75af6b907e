"""
The target of a publication, and how it goes out again so that the minion decides again.


The minions that Salt waits for are only a guess of the master: its grains and pillar of a minion
may be old or missing. A job that goes out again has one of Salt's own compound targets: the minions
by name *and* the original target. So Salt itself decides on the minion, whatever runs there.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from salt.defaults import DEFAULT_TARGET_DELIM

from ..core.errors import RecordError

# The letters that a compound target has for other kinds of targets.
_LETTERS = {
    "grain": "G",
    "grain_pcre": "P",
    "pillar": "I",
    "pillar_exact": "I",
    "pillar_pcre": "J",
    "pcre": "E",
    "ipcidr": "S",
    "range": "R",
}
_WITH_DELIMITER = frozenset("GPIJ")
# Kinds for which a minion respects another delimiter.
_MINDING_DELIMITER = frozenset(("grain", "grain_pcre", "pillar"))
# Targets that mean resources of minions, and not the minions themselves.
_OF_RESOURCES = ("T@", "M@")
_OPERATORS = frozenset(("and", "or", "not", "(", ")"))
# Most characters of a target: a question is about many of them, and all minions get it.
LONGEST = 16 << 10


class Undecidable(ValueError):
    """No minion could decide on its own whether the target matches it."""


class Target(NamedTuple):
    """A target as it was published. *tgt* is text, or a list of names or of words."""

    tgt: Any
    tgt_type: str = "glob"
    delimiter: str = DEFAULT_TARGET_DELIM

    def text(self) -> str:
        return json.dumps(self, separators=(",", ":"))


def of(load: Mapping[str, Any]) -> Target:
    """Return the target of a publication."""
    return Target(
        load.get("tgt"),
        str(load.get("tgt_type", "glob")),
        str(load.get("delimiter", DEFAULT_TARGET_DELIM)),
    )


def read(text: bytes) -> Target:
    """Return the target that :meth:`Target.text` has written, or raise RecordError if damaged."""
    try:
        return Target(*json.loads(text))
    except (TypeError, ValueError) as err:
        raise RecordError(f"the target that is stored is damaged: {err}") from err


def is_sound(minion: str) -> bool:
    """Return whether an ID is unambiguous in a target: no comma, no control characters."""
    return minion.isprintable() and "," not in minion


def narrowed(target: Target, minions: Iterable[str]) -> Target:
    """Return the part of a target for these minions; a list may have the names of thousands."""
    if target.tgt_type != "list":
        return target
    tgt = target.tgt
    listed = tgt.split(",") if isinstance(tgt, str) else tgt
    # A publisher may put anything into a list; only texts are minions.
    names = frozenset(name for name in listed if isinstance(name, str))
    return target._replace(tgt=sorted(names.intersection(minions)))


def asked(
    targets: Mapping[int, Target],
    jids: Mapping[int, str],
    ages: Mapping[int, float],
    minions: Iterable[str],
) -> list[dict[str, Any]]:
    """
    Return the question to minions about publications: does each target match them?

    *jids* has the job of each publication, *ages* how many seconds ago it was. A minion
    answers for jobs that it has not accepted.
    """
    names = list(minions)
    found: dict[str, dict[str, Any]] = {}
    for number, target in targets.items():
        aim = narrowed(target, names)
        asked = found.setdefault(aim.text(), {**aim._asdict(), "jobs": {}, "ages": {}})
        asked["jobs"][str(number)] = jids[number]
        asked["ages"][str(number)] = round(ages[number], 1)
    return list(found.values())


def again(target: Target, minions: Iterable[str], *, forwarded: bool = False) -> list[str]:
    """
    Return the compound target for the minions in *minions* that the target matched.

    Syndics join the words of a *forwarded* target. Raises Undecidable if no target can do that, or
    no minion has an unambiguous ID.
    """
    names = sorted(name for name in minions if not forwarded or _stay([name]))
    if target.tgt_type == "list":
        names = list(narrowed(target, names).tgt)
    if not names or not all(map(is_sound, names)):
        raise Undecidable("no minion is left that it could be for")
    words = [] if target.tgt_type == "list" else ["and", "(", *_words(target), ")"]
    if forwarded:
        _refuse_spaces(words)
    return [f"L@{','.join(names)}", *words]


def by_name(target: Target, minions: Iterable[str]) -> list[str] | None:
    """
    Return the minions in *minions* that match by their IDs; None if more than the ID decides.

    If the master sends to targeted minions only (``zmq_filtering``, or another transport than
    ZeroMQ), a list reaches only them, like the first publication. A compound target would reach
    all minions, with the arguments of the job.
    """
    kind, tgt = target.tgt_type, target.tgt
    if kind == "list":
        return list(narrowed(target, minions).tgt)
    if kind not in ("glob", "pcre") or not isinstance(tgt, str):
        return None
    # Salt matches like this on the minion.
    matches = re.compile(fnmatch.translate(tgt) if kind == "glob" else tgt).match
    return sorted(name for name in minions if matches(name))


def check(target: Target, *, forwarded: bool = False) -> None:
    """Raise Undecidable if :func:`again` could not make a target for a job with this one."""
    if target.tgt_type == "list":
        if not isinstance(target.tgt, str | list | tuple):
            raise Undecidable(f"a list of minions is no {type(target.tgt).__name__}")
        return
    if len(target.text()) > LONGEST:
        raise Undecidable(f"its target has more than {LONGEST} characters")
    words = _words(target)
    if forwarded:
        _refuse_spaces(words)


def _stay(words: list[str]) -> bool:
    """Return whether words are the same after joining, as Salt reads a compound target."""
    return " ".join(words).split() == words


def _refuse_spaces(words: list[str]) -> None:
    if not _stay(words):
        raise Undecidable("a syndic would read the part after a space in it as another target")


def _words(target: Target) -> list[str]:
    """Return the words of a compound target with the same meaning on the minion."""
    kind, tgt = target.tgt_type, target.tgt
    if kind == "compound":
        words = tgt.split() if isinstance(tgt, str) else tgt
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise Undecidable("its target is no text")
        return _balanced(list(words))
    if not isinstance(tgt, str) or "\n" in tgt:
        raise Undecidable("its target is no line of text")
    if kind == "glob":
        if tgt in _OPERATORS or "@" in tgt[1:3]:
            raise Undecidable(f"{tgt!r} means something else among other targets")
        return [tgt]
    letter = _LETTERS.get(kind)
    if letter is None:
        raise Undecidable(f"minions do not know targets of the kind {kind!r}")
    if kind == "pillar_exact" and any(mark in tgt for mark in "*?["):
        raise Undecidable("an exact pillar with *, ? or [ means something else among other targets")
    delimiter = target.delimiter if kind in _MINDING_DELIMITER else DEFAULT_TARGET_DELIM
    if letter not in _WITH_DELIMITER:
        return [f"{letter}@{tgt}"]
    if len(delimiter) != 1 or delimiter == "\n":
        raise Undecidable(f"its delimiter {delimiter!r} is not one character")
    return [f"{letter}{delimiter}@{tgt}"]


def _balanced(words: list[str]) -> list[str]:
    """Return the words of a target if they can be put into parentheses."""
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if depth < 0 or "\n" in word:
            break
        if word.startswith(_OF_RESOURCES):
            raise Undecidable("it is for resources")
    else:
        if not depth:
            return words
    raise Undecidable("its parentheses do not match")
