"""The state run of this thread, and the states that are deferred to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, NoReturn

from ..core.frozen import changeable, frozen
from .chunks import listed
from .of_thread import local

if TYPE_CHECKING:
    from ..core.packages.request import Change, Request
    from .secured import Secured


class Deferral(BaseException):
    """
    A state is about to change the own packages; it has not changed anything yet.

    This is no Exception, because state modules turn exceptions into results.
    """

    def __init__(
        self,
        changes: Mapping[str, Change],
        names: frozenset[str],
        request: Request | None = None,
        *,
        along: frozenset[str] = frozenset(),
        follows: bool = False,
        exact: bool = False,
    ) -> None:
        super().__init__("the minion's own packages change at the end of the run")
        self.changes = dict(changes)
        # The own packages that the state names, and the packages that pull them along.
        self.names = names
        # The request; None if another process has met it, or if the state changes no package.
        self.request = request
        # Other packages that the package manager removes along with them.
        self.along = along
        # Whether it waits because of an earlier one. Then its call has not been reached yet.
        self.follows = follows
        # Whether the request is all that the call installs, and no lock keeps it from that.
        self.exact = exact

    @property
    def told(self) -> str:
        """The packages to name in a comment."""
        return listed(self.changes or self.names)


@frozen
class LeftOut:
    """The packages that a call left out because their version is in quarantine."""

    text: str
    # Whether the call names packages. Then it has failed, else it was about everything.
    named: bool
    # The changes of the rest of the call.
    changes: Mapping[str, Any]


@changeable
class Level:
    """The outermost run, or one nested in a state of it: its chunks and their results."""

    owner: Any
    # How many states had been deferred when it began.
    first: int = 0
    chunks: list[Any] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    # Tags of the states that got a process of their own.
    parallel: list[str] = field(default_factory=list)
    # For a recorded run: the tags of the states around it, the results that the next state is
    # called with, and all earlier results, with their owners.
    place: str = ""
    running: Any = None
    seen: list[tuple[Any, Any]] = field(default_factory=list)
    # Tags of finished states that have deferred something in an inner run.
    unfinished: set[str] = field(default_factory=set)

    def see(self, state: Any, running: Any) -> None:
        """Note the results that *state*, an object of Salt's engine, calls its states with."""
        self.running = running
        if running is not None:
            self.seen.append((state, running))


class Memo:
    """
    The return values of the functions of one ``module.run``, in the order of the calls.

    When a deferred state is called again at the end, those functions are not called twice.
    """

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self._next = 0

    @property
    def has_called(self) -> bool:
        """Whether a function has returned: it is called again if the state is."""
        return bool(self._done)

    def rewind(self) -> None:
        self._next = 0

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        number = self._next
        self._next += 1
        if number not in self._done:
            self._done[number] = function(*args, **kwargs)
        return self._done[number]


@changeable
class Pending:
    """A deferred state: what of it waits for the end of the run."""

    state: Any
    low: dict[str, Any]
    level: Level
    deferral: Deferral
    # The result of the part that does not change the own packages, if there was one.
    done_at_once: dict[str, Any] | None
    # The result of the state until the end of the run.
    placeholder: dict[str, Any]
    memo: Memo | None = None
    # The package files that were taken for it at its position.
    secured: Secured | None = None
    # Why they could not be taken, and what that means.
    not_secured: str = ""
    # Whether the placeholder has the real result.
    settled: bool = False


@changeable
class Run:
    """One state run with the runs nested in it."""

    levels: list[Level] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    # How many states are being called, each inside the one before it, in full.
    calling: int = 0
    # Whether the next state may be called plainly: with only what nearly every state needs.
    plain: bool = False
    # The state that is being called plainly.
    low: dict[str, Any] | None = None
    # Whether the ledger records the results of this run.
    recorded: bool = False
    # Whether all states have been called and the deferred ones are carried out.
    finishing: bool = False
    # Whether this is the process of a parallel state, which writes its deferrals to its result.
    remote: bool = False
    # The packages that an upgrade of everything leaves alone at the moment.
    excluded: frozenset[str] = frozenset()
    # The package files for the deferred state that is being called at the end.
    secured: Secured | None = None
    # For the current ``module.run``.
    memo: Memo | None = None
    # Whether functions around the nested run would be called again if this one were suspended.
    calls_again: bool = False
    # Why the minion is to restart after the run.
    restart_reason: str = ""
    # Whether the state that is being called has asked for that.
    restart_asked: bool = False
    # The results of the states that have asked for it.
    restarted: list[dict[str, Any]] = field(default_factory=list)
    # Suspends the job of this run until a restart, of which the state that is being called asks.
    suspend: Callable[..., NoReturn] | None = None
    # Whether it was suspended: no other state is called, also if somebody has caught that.
    suspended: bool = False
    # The packages that the current state has left out.
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def inside(self) -> bool:
        """Whether a state is being called: a Deferral is caught only then."""
        return bool(self.calling) or self.low is not None

    def ask_for_restart(self, reason: str) -> None:
        """Have the minion restart after the run, and the current state's result say so."""
        self.restart_reason = self.restart_reason or reason
        self.restart_asked = True


def current() -> Run | None:
    run: Run | None = getattr(local, "run", None)
    return run


@contextlib.contextmanager
def enter(owner: Any) -> Iterator[tuple[Run, Level]]:
    """Yield the current run, or else a new one, and a new level of it."""
    run = current()
    outermost = run is None
    if run is None:
        run = local.run = Run()
    level = Level(owner=owner, first=len(run.pending))
    run.levels.append(level)
    try:
        yield run, level
    except BaseException:
        # There is no result any more that could tell what became of the deferred states.
        del run.pending[level.first :]
        raise
    finally:
        run.levels.pop()
        if outermost:
            local.run = None
