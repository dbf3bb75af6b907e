"""A Salt function inside a transaction: the outer half."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import CommandError, InputError, SafeUpdateError
from . import handover
from .cli import Options
from .closing import Refusal
from .handover import Answer, Directory, Request
from .inside import shadowed_places
from .invocation import Host
from .outcome import Limits, Outcome, with_lines
from .services import Ask, Settled, Wishes, is_state_result, read_wishes, settle
from .tool import Tool, witnessed

_PERFORM = "transactional_update.perform"
# Keys of the ``transactional_update`` mapping of the minion configuration.
SETTINGS = ("handover_dir", "lock_timeout", "salt_call", "timeout")
# The exit status of Salt for a state that failed.
_STATE_FAILURE = 2
# Changes that do not take effect without a reboot.
REBOOT = "the reboot"
# Keyword arguments of a call that are meant for the transaction, not for the function.
_RESERVED = ("timeout", "lock_timeout", "keep", "report", "snapshot")


def split_reserved(kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the function's keyword arguments, and the ``transaction_*`` ones without prefix."""
    own, ours = {}, {}
    for key, value in kwargs.items():
        name = key.removeprefix("transaction_")
        if name != key and name in _RESERVED:
            ours[name] = value
        elif not key.startswith("__pub_"):
            own[key] = value
    return own, ours


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The answer of a call, and the circumstances."""

    value: Any
    retcode: int
    outcome: Outcome
    wishes: Wishes
    settled: Settled
    vanished: Sequence[str]
    unseen: Sequence[str] = ()

    def reboot_due(self, activate: bool) -> bool:
        """Tell whether to reboot now: asked for inside, or by *activate* with something pending."""
        if self.outcome.failure:
            return False
        return self.wishes.reboot or (bool(activate) and self.outcome.after.pending)

    def shown(self, report: bool) -> Any:
        """
        Return the value alone, or with the report: also if edits were lost, and no text or state
        can name them. Raise if it says what did not happen.
        """
        if not report:
            undone = self.settled.failed or self.settled.not_done
            if undone and not is_state_result(self.value):
                raise SafeUpdateError(" ".join(remarks(self)[0]))
            if not self.outcome.lost or is_state_result(self.value):
                return self.value
            if isinstance(self.value, str):
                return with_lines(self.value, self.outcome.lost)
        return {"return": self.value, "retcode": self.retcode, "transaction": self.report()}

    def report(self) -> dict[str, Any]:
        """Return what happened as plain data."""
        return {
            **self.outcome.report(),
            "failure": self.outcome.failure,
            "services": self.settled.as_dict(),
            "reboot_asked": self.wishes.reboot,
            "not_done": list(self.wishes.refused),
            "vanished_files": list(self.vanished),
            "unseen_paths": list(self.unseen),
        }


def salt_call_words(
    opts: Mapping[str, Any],
    *,
    executable: str = sys.executable,
    which: Callable[[str], str | None] = shutil.which,
) -> list[str]:
    """
    Return how ``salt-call`` is started in the snapshot, up to the function.

    It is the one next to this interpreter, so that a bundle calls itself. It has no options that a
    function inside could mistake for the configuration of the minion. It writes no byte code: that
    would be a change of the snapshot.
    """
    given = settings(opts).get("salt_call")
    if given is not None and (not isinstance(given, str) or not given.startswith("/")):
        raise InputError("transactional_update:salt_call has to be an absolute path")
    home = Path(executable).parent
    beside = [str(place / "salt-call") for place in (home, home.parent)]
    found = [path for path in beside if os.access(path, os.X_OK)]
    program = given or next(iter(found), None) or which("salt-call") or "salt-call"
    words = ["env", "PYTHONDONTWRITEBYTECODE=1", program]
    if opts.get("conf_file"):
        words += ["--config-dir", os.path.dirname(str(opts["conf_file"]))]
    if opts.get("file_client") == "local":
        words.append("--local")
    quiet = ["--out", "quiet", "--log-level", "quiet", "--no-return-event"]
    return [*words, *quiet, "--retcode-passthrough"]


def settings(opts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ``transactional_update`` mapping of the minion configuration."""
    found = opts.get("transactional_update") or {}
    if not isinstance(found, Mapping):
        raise InputError("transactional_update has to be a mapping in the minion configuration")
    unknown = sorted(str(key) for key in found.keys() - set(SETTINGS))
    if unknown:
        raise InputError(
            f"transactional_update:{unknown[0]} is no setting; known are {', '.join(SETTINGS)}"
        )
    return found


def host(opts: Mapping[str, Any]) -> Host:
    """Return the places of this host, with the configured place of the hand-over."""
    place = settings(opts).get("handover_dir")
    if place is None:
        return Host()
    if not isinstance(place, str) or not place.startswith("/"):
        raise InputError("transactional_update:handover_dir has to be an absolute path")
    return Host(base=Path(place))


def limits(opts: Mapping[str, Any], timeout: float | None, lock_timeout: float | None) -> Limits:
    """Return the limits of a call: given, configured, or default."""
    given = {"timeout": timeout, "lock_timeout": lock_timeout}
    chosen = {
        name: settings(opts).get(name) if value is None else value for name, value in given.items()
    }
    return Limits(**{name: value for name, value in chosen.items() if value is not None})


def call(
    tool: Tool,
    function: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    salt_call: Sequence[str],
    options: Options,
    limits: Limits,
    ask: Ask,
) -> Reply:
    """
    Call *function* in a transaction and return what it returned, with its type.

    *ask* asks the running minion for what the function asked for inside.
    """
    if not isinstance(function, str) or function.count(".") != 1:
        raise InputError("function has to be MODULE.FUNCTION; nothing was called")
    shadowed = shadowed_places(tool.host.mountinfo.read_text(encoding="utf-8"))
    with handover.opened(tool.host.base) as directory:
        directory.put_request(
            Request(function=function, args=args, kwargs=kwargs, shadowed=shadowed)
        )
        # salt-call returns 0 when it is told to stop, and 0 is committed: the witness decides.
        seen = witnessed(directory, "--answer")
        words = ["run", *seen, *salt_call, "--", _PERFORM, str(directory.path)]
        outcome = tool.invoke(
            words,
            options,
            limits,
            directory=directory,
            failed=lambda: _inner_failure(directory, directory.answer()),
        )
        answer = directory.answer()
        if answer is None or answer.error is not None:
            raise _instead(function, outcome, answer, directory)
        if outcome.grave and not is_state_result(answer.value):
            # A function that is told to stop may still answer, and not mention it.
            raise _instead(function, outcome, answer, directory)
        wishes = read_wishes(directory.wish_list(), answer.value, test=bool(kwargs.get("test")))
    settled = settle(wishes, tool.run, ask, failed=outcome.failure is not None, live=outcome.live)
    value, retcode = with_answers(function, answer, settled)
    if outcome.refusal is not None:
        value = _refused(value, outcome.refusal)
    reply = Reply(
        value=value,
        retcode=retcode,
        outcome=outcome,
        wishes=wishes,
        settled=settled,
        vanished=answer.vanished,
        unseen=answer.unseen,
    )
    return _told(reply)


def with_answers(function: str, answer: Answer, settled: Settled) -> tuple[Any, int]:
    """Return the value and the exit status with what the running minion answered in its place."""
    if not is_state_result(answer.value):
        return settled.answers.get(function, answer.value), answer.retcode
    value = {tag: {**chunk, **settled.states.get(tag, {})} for tag, chunk in answer.value.items()}
    failed = any(found.get("result") is False for found in settled.states.values())
    return value, answer.retcode or (_STATE_FAILURE if failed else 0)


def _refused(value: Any, refusal: Refusal) -> Any:
    """Have the states fail that have installed what may not stay."""
    if not is_state_result(value):
        return value
    failed = {
        tag: {**chunk, "result": False, "changes": {}, "comment": refusal.reason}
        for tag, chunk in value.items()
        if set(refusal.packages) & set(chunk.get("changes") or ())
    }
    return {**value, **failed}


def _inner_failure(directory: Directory, answer: Answer | None) -> str | None:
    if answer is not None:
        return None if answer.retcode == 0 else f"the function's exit status is {answer.retcode}"
    if directory.begun:
        return "the function ended without a result"
    return (
        "salt-call did not get as far as the function. Is saltext-safeupdate installed in the "
        "snapshot that the transaction starts from?"
    )


def _instead(
    function: str, outcome: Outcome, answer: Answer | None, directory: Directory
) -> SafeUpdateError:
    """Return the error that came instead of a result."""
    error = answer.error if answer else None
    if error is not None and not outcome.grave:
        return SafeUpdateError(f"{function} in the transaction: {error} ({outcome.effect})")
    said = (error, directory.error_output(), outcome.result.stderr.strip())
    return CommandError(
        outcome.call.argv,
        f"{function}: {outcome.failure or 'no result'}",
        stdout=outcome.result.stdout,
        stderr="\n".join(text for text in said if text),
        returncode=outcome.result.returncode,
    )


def _told(reply: Reply) -> Reply:
    """Put what the caller has to know into a state run's result; raise if it has none."""
    sentences, good = remarks(reply)
    retcode = reply.retcode or int(not good)
    if not is_state_result(reply.value):
        if reply.outcome.failure and reply.retcode == 0:
            reply.outcome.check()
        return _replace(reply, reply.value, retcode)
    if not sentences:
        return _replace(reply, reply.value, retcode)
    chunk = {
        "name": "transaction",
        "changes": {"restarted": reply.settled.done} if reply.settled.done else {},
        "result": good,
        "comment": " ".join(sentences),
        "duration": 0,
        "start_time": "",
        "__run_num__": 1 + max(chunk.get("__run_num__", 0) for chunk in reply.value.values()),
        "__id__": "transaction",
        "__sls__": "transactional_update",
    }
    tag = "transactional_update_|-transaction_|-transaction_|-report"
    return _replace(reply, {**reply.value, tag: chunk}, retcode)


def not_rebooted(reply: Reply, function: str, err: SafeUpdateError, *, report: bool) -> Reply:
    """
    Return the reply of *function* with the reason why the reboot that was due did not come.

    The changes take effect with the next boot. Raise, with the value, if neither a state nor
    a *report* can say so.
    """
    settled = replace(reply.settled, not_done={**reply.settled.not_done, REBOOT: str(err)})
    told = replace(reply, settled=settled, retcode=reply.retcode or _STATE_FAILURE)
    if report or is_state_result(reply.value):
        return _told(told)
    said = " ".join(remarks(told)[0])
    raise SafeUpdateError(
        f"{function} is done, and waits for a reboot. {said} It returned: {reply.value!r}"
    )


def _replace(reply: Reply, value: Any, retcode: int) -> Reply:
    return Reply(**{**vars(reply), "value": value, "retcode": retcode})


def remarks(reply: Reply) -> tuple[list[str], bool]:
    """Return the sentences for the user, and whether all went well."""
    settled, outcome, wishes = reply.settled, reply.outcome, reply.wishes
    said = []
    if outcome.failure:
        fate = "failed" if outcome.new_default else "was discarded"
        said.append(f"The transaction {fate}: {outcome.failure}; {outcome.effect}.")
    said += [
        f"{words}: {', '.join(found)}."
        for words, found in (
            ("Done after the transaction", settled.done),
            ("Happens with the reboot that the new snapshot waits for", settled.at_reboot),
            ("Not done, as the transaction failed", settled.skipped),
            ("The minion restarts when its jobs have ended, as asked for", settled.deferred),
            ("Not done, as it would end this job", settled.own),
            ("Asked for inside and not done", wishes.refused),
        )
        if found
    ]
    said += [
        f"{words} after the transaction failed: {why}." for words, why in settled.failed.items()
    ]
    said += [f"Not done, {words}: {why}." for words, why in settled.not_done.items()]
    if wishes.reboot and REBOOT not in settled.not_done:
        said.append(
            "The reboot that was asked for is not done, as the transaction failed."
            if outcome.failure
            else "The reboot that was asked for comes after the transaction."
        )
    said += outcome.lost
    if reply.vanished:
        said.append(
            "Written to places that are not part of a snapshot, so nobody will see it: "
            f"{', '.join(reply.vanished)}. Such files have to be written outside of a transaction."
        )
    if reply.unseen:
        said.append(
            "Called correct by states, but a transaction does not see what the live system has "
            f"there: {', '.join(reply.unseen)}. Such states have to run outside of a transaction."
        )
    return said, not (outcome.failure or settled.failed or settled.not_done)
