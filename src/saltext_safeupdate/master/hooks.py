"""
Install the hooks in the master: all of them, or none.

The engine of the master installs them when Salt loads it. That is in the master's parent process,
before its request server forks, so every worker has them.
"""

from __future__ import annotations

import fnmatch
import functools
import inspect
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import salt.master
import salt.payload
from salt.exceptions import PublishError, SaltException

from .. import patches
from ..core.errors import RecordError
from ..core.jobs import functions, jids
from ..patches import Patch
from . import aiming, questions, replies, rights, senders
from .account import ALL, QUESTION, TICKET, Account, path_of
from .aiming import Target, Undecidable
from .choice import Choice
from .engine_options import START_TAGS, choice, configured, start_tags, unfit
from .notes import RETURN, START, Notes, Share, heard

log = logging.getLogger(__name__)

# The keys of a publication that name its target.
_AIM = ("tgt", "tgt_type", "delimiter")
# The most publications that may be under way at once; any more were never sent.
_MOST_UNSENT = 100
# The most bytes of notes about one minion in a second, by all workers together (more than a
# thousand returns), and the least for one worker. The engine reads 640 kB in a second.
_MOST_NOTES, _LEAST_NOTES = 160 << 10, 4 << 10
# Seconds between two complaints about the account.
_COMPLAINT_INTERVAL = 60.0

# The parameters of a replaced function; and below, how a publication is kept from going out.
_PREPARED = ("self", "minions", "jid", "clear_load", "extra", "missing")
_SENT = ("self", "load")
_CALLED = ("self", "func", "load")
_REFUSES = (PublishError,)

_ALL = Choice()

# The pipes of the workers: notes about all messages of minions, and answers to our questions.
_installed: list[tuple[Notes, Notes]] = []
_stood_down: list[str] = []


def install(opts: Mapping[str, Any]) -> bool:
    """
    Install the hooks of a master; return whether they are there. Once is enough for all workers.

    Nothing is done for a master without our engine: Salt may load the file of an engine only to
    look into it.
    """
    if _installed:
        return True
    if _stood_down or not configured(opts):
        return False
    reason = unfit(opts)
    if not reason:
        notes, answers = Notes(), Notes()
        workers = opts.get("worker_threads")
        keeper = Keeper(
            *(Account(path_of(opts)), notes, answers, start_tags(opts)),
            choice=choice(opts),
            forwards=bool(opts.get("order_masters")),
            workers=workers if isinstance(workers, int) else 1,
        )
        reason = put_in(keeper)
        if not reason:
            _installed.append((notes, answers))
            return True
        notes.close()
        answers.close()
    _stood_down.append(
        f"{reason} Nothing is published again and rollouts stand still; jobs run as with plain "
        "Salt."
    )
    return False


def notes() -> Notes:
    """Return the notes of the workers of this master."""
    return _installed[0][0]


def answers() -> Notes:
    """Return the workers' pipe for answers of minions."""
    return _installed[0][1]


def stood_down() -> str:
    """Return why this master publishes no job again; empty if it does."""
    return _stood_down[0] if _stood_down else ""


def put_in(keeper: Keeper) -> str:
    """Replace the functions of Salt's master; return why that is not possible, or empty."""
    table = keeper.table()
    different = patches.differences(table)
    if different:
        return (
            f"This Salt is not known: {'; '.join(different)}. Install a version of "
            "saltext-safeupdate that knows it."
        )
    patches.apply(table)
    return ""


class _Unsent(NamedTuple):
    """
    A publication that Salt is about to send.

    *load* is the whole publication, and *content* the part of it without the target. The rest is as
    in :meth:`.Account.published`.
    """

    load: dict[str, Any]
    content: dict[str, Any]
    minions: list[str]
    target: Target
    again: bool
    right: str


class Keeper:
    """
    The replacements of functions of Salt's master, in each of its workers.

    *forwards*: its publications also reach syndics. *workers* is their number.
    """

    def __init__(
        self,
        account: Account,
        notes: Notes,
        answers: Notes,
        tags: Iterable[str] = START_TAGS,
        clock: Callable[[], float] = time.monotonic,
        *,
        choice: Choice = _ALL,
        forwards: bool = False,
        workers: int = 5,
    ) -> None:
        self._account = account
        self._choice = choice
        self._forwards = forwards
        self._notes = notes
        self._answers = replies.Sender(answers)
        self._share = Share(max(_MOST_NOTES // max(workers, 1), _LEAST_NOTES), clock)
        self._gate = senders.Gate(clock)
        self._starts = re.compile("|".join(map(fnmatch.translate, tags)) or "(?!)").match
        self._clock = clock
        self._complain_at = self._wait_at = 0.0
        self._unsent: dict[int, _Unsent] = {}
        self._config = ""
        self._is_lost = False

    def table(self) -> list[Patch]:
        """Return the functions of Salt to replace, and the ones that we need."""
        aes, clear, worker = salt.master.AESFuncs, salt.master.ClearFuncs, salt.master.MWorker
        return [
            Patch(clear, "publish", ("self", "clear_load"), patches.unchanged, may_wait=True),
            Patch(clear, "_prep_pub", _PREPARED, patches.replaced(_PREPARED, self._prep, _REFUSES)),
            Patch(clear, "_send_pub", _SENT, patches.replaced(_SENT, self._send), may_wait=True),
            Patch(aes, "_return", ("self", "load"), patches.unchanged, may_wait=True),
            Patch(aes, "_minion_event", ("self", "load"), patches.unchanged),
            Patch(aes, "run_func", _CALLED, patches.replaced(_CALLED, self._run)),
            # Every message from the network passes here, before the three above.
            Patch(worker, "_handle_payload", ("self", "payload"), self._gate.before, may_wait=True),
        ]

    def _run(self, original: Callable[..., Any], master: Any, func: Any, load: Any) -> Any:
        """A call of a minion to its master. Here its ID is the one that the channel has checked."""
        note = heard(func, load, functions.QUERY, self._says_start)
        # Most returns are not for us, so a look at the function has to be enough. Salt changes its
        # arguments.
        answer = replies.of(load, questions.FUNCTIONS) if note and note[0] == RETURN else None
        outcome = original(master, func, load)
        if note is None or (note[0] == RETURN and not answer):
            return outcome
        if inspect.isawaitable(outcome):
            return self._once_done(outcome, note, answer)
        self._tell(outcome, note, answer)
        return outcome

    async def _once_done(
        self, doing: Awaitable[Any], note: tuple[Any, ...], answer: tuple[str, str, str] | None
    ) -> Any:
        """Wait for the call in a master of Salt 3008 with 'master_async_mworker'."""
        outcome = await doing
        try:
            self._tell(outcome, note, answer)
        except Exception as err:  # noqa: BLE001 (it is told)
            patches.tell("salt.master.AESFuncs.run_func", err)
        return outcome

    def _tell(
        self, outcome: Any, note: tuple[Any, ...], answer: tuple[str, str, str] | None
    ) -> None:
        """Tell the engine about a message of a minion, unless Salt has refused it."""
        if note[0] != START and _is_refused(outcome):
            return
        if answer:
            self._answers.send(*answer)
            return
        minion = note[1] if note[0] == START else note[2]
        self._notes.write(*note, takes=functools.partial(self._share.takes, minion))

    def _prep(
        self,
        original: Callable[..., Any],
        master: Any,
        minions: Any,
        jid: Any,
        clear_load: Any,
        extra: Any,
        missing: Any,
    ) -> Any:
        """Only the master's own publications pass here."""
        if TICKET in extra:
            try:
                return self._again(master, extra[TICKET], minions, clear_load)
            except PublishError:
                raise
            except Exception as err:
                # The other arguments of the engine must not go out instead.
                raise PublishError(f"safeupdate: nothing was published: {err}") from err
        load = original(master, minions, jid, clear_load, extra, missing)
        # With an "id" a minion has published it, as "peer" of the master allows. Minions must not
        # be able to fill the account, but may end jobs.
        # The engine repeats its own questions if it still needs the answers.
        ours = QUESTION in extra or ("id" in extra and not _ends(load))
        if minions and not ours:
            again = "id" not in extra and self._choice.is_wanted(load)
            self._note_unsent(load, minions, again, lambda: self._right(master, clear_load, extra))
        return load

    def _right(self, master: Any, clear_load: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
        # It is the same in a master until it is started again.
        self._config = self._config or rights.config_of(master.opts)
        return rights.of(self._config, clear_load, extra)

    def _again(
        self, master: Any, ticket: object, minions: Iterable[str], clear_load: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the original publication, for the minions that get it again."""
        again = self._account.redeem(ticket)
        if again is None:
            raise PublishError("safeupdate: this ticket is not valid; nothing was published")
        try:
            names = set(minions).intersection(again.minions)
            words = aiming.again(again.target, names, forwarded=self._forwards)
        except Undecidable as err:
            raise PublishError(f"safeupdate: nothing was published again: {err}") from err
        load: dict[str, Any] = salt.payload.loads(again.load)
        aim = again.target._asdict()
        if again.right and not rights.still_holds(again.right, master, {**aim, **load}, names):
            self._account.delete([again.number])
            raise PublishError("safeupdate: who has published it may not do so any more")
        # A syndic forwards it, to the minions that the syndic itself targets.
        listed = None if self._forwards else aiming.by_name(again.target, names)
        narrow = {"tgt": listed, "tgt_type": "list"} if listed else {"tgt": words}
        load |= {"tgt_type": "compound", **narrow}
        clear_load["jid"] = load["jid"]
        return load

    def _note_unsent(
        self, load: dict[str, Any], minions: Iterable[str], again: bool, right: Callable[[], str]
    ) -> None:
        """Remember a publication that is about to be sent, if it matters."""
        ends, asks = _ends(load), _asks(load)
        target = aiming.of(load)
        why_not = self._why_not_again(load, target) if again else ""
        if why_not:
            self._complain(
                f"Minions that miss job {str(load.get('jid'))[:32]!a} do not get it again, because "
                f"{why_not}."
            )
        again = again and not why_not
        if not (again or ends or asks):
            return
        # Salt may add keys until it is sent.
        content = {key: value for key, value in load.items() if key not in _AIM}
        may_get = self._choice.may_get(minions)
        self._unsent[id(load)] = _Unsent(load, content, may_get, target, again, right())
        if len(self._unsent) > _MOST_UNSENT:
            del self._unsent[next(iter(self._unsent))]

    def _why_not_again(self, load: Mapping[str, Any], target: Target) -> str:
        if not jids.is_jid(str(load.get("jid"))):
            # They cannot see when it was made, so each says that it may have run it.
            return "its ID is not one that Salt has made"
        try:
            aiming.check(target, forwarded=self._forwards)
        except (Undecidable, TypeError, ValueError) as err:
            return f"they could not tell whether it is meant: {err}"
        return ""

    def _send(self, original: Callable[..., Any], master: Any, load: Any) -> Any:
        """Write a sent publication down. One that could not be sent must never come later."""
        unsent = self._unsent.pop(id(load), None)
        if unsent is not None and unsent.load is not load:
            unsent = None
        if unsent is not None and _ends(unsent.content):
            # A job must not go out again after the minion has heard of its end.
            self._write_down(unsent._replace(again=False))
            unsent = unsent if unsent.again else None
        outcome = original(master, load)
        if unsent is None:
            return outcome
        if inspect.isawaitable(outcome):
            return self._once_sent(outcome, unsent)
        self._write_down(unsent)
        return outcome

    async def _once_sent(self, sending: Awaitable[Any], unsent: _Unsent) -> Any:
        outcome = await sending
        try:
            self._write_down(unsent)
        except Exception as err:  # noqa: BLE001 (it is told)
            patches.tell("salt.master.ClearFuncs._send_pub", err)
        return outcome

    def _write_down(self, sent: _Unsent) -> None:
        """Write into the account; after a wait without success, do not wait long again."""
        in_vain = self._clock() < self._wait_at
        ends, asks = _ends(sent.content), _asks(sent.content)
        try:
            gone = (self._account.hurried() if in_vain else self._account).published(
                str(sent.content["jid"]),
                salt.payload.dumps(sent.content) if sent.again or asks else b"",
                sent.minions,
                sent.target,
                ends=ends,
                asks=asks,
                again=sent.again,
                right=sent.right,
            )
        except (RecordError, OSError, SaltException, TypeError, ValueError) as err:
            self._is_lost |= bool(ends or asks)
            self._lose()
            if not in_vain:
                # Otherwise each later publication would have to wait as long.
                self._wait_at = self._clock() + _COMPLAINT_INTERVAL
            self._complain(err)
            return
        self._lose()
        self._wait_at = 0.0
        if gone:
            self._complain(
                f"The account of the master is full: {gone} older jobs were removed. Minions "
                "that have missed them do not get them again."
            )

    def _lose(self) -> None:
        """Let the engine know that something that ends a job, or asks after one, is missing."""
        if not self._is_lost:
            return
        try:
            self._account.lose()
        except RecordError as err:
            # It is tried again with the next publication.
            self._complain(err)
        else:
            self._is_lost = False

    def _complain(self, what: object) -> None:
        """Log at most once a minute."""
        now = self._clock()
        if now >= self._complain_at:
            self._complain_at = now + _COMPLAINT_INTERVAL
            log.error("safeupdate: %s", what)

    def _says_start(self, tag: str) -> bool:
        return self._starts(tag) is not None


def _ends(load: Mapping[str, Any]) -> str:
    """Return which job a publication ends, as the account has it."""
    ended = functions.gives_up(load.get("fun"), load.get("arg"))
    return ended.pop() or ALL if len(ended) == 1 else ALL if ended else ""


def _asks(load: Mapping[str, Any]) -> str:
    """Return after which job a publication asks; empty if it does not."""
    arg = load.get("arg")
    if load.get("fun") != functions.FIND_JOB or not isinstance(arg, list | tuple) or not arg:
        return ""
    return str(arg[0])


def _is_refused(outcome: Any) -> bool:
    """
    Return whether Salt has refused a return, by its answer to the minion and how to send it.

    The answer is False if the return lacks the signature that 'require_minion_sign_messages' wants
    or has another's, and an empty text if Salt failed on it. The minion keeps such a return.
    """
    value = outcome[0] if isinstance(outcome, tuple) and outcome else outcome
    return value is False or value == ""
