"""The state run of this thread, and what it leaves for its end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.packages.request import Change


class Deferral(BaseException):
    """
    A state is about to change the minion's own packages: nothing was changed yet.

    Not an Exception: state modules turn those into results.
    """

    def __init__(self, changes: Mapping[str, Change], names: frozenset[str]) -> None:
        super().__init__("the minion's own packages change at the end of the run")
        self.changes = dict(changes)
        self.names = names


@dataclass
class Level:
    """The outermost run or one nested in a state of it: its chunks and their results."""

    owner: Any
    first: int = 0
    chunks: list[Any] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    # Tags of the states that got a process of their own.
    parallel: list[str] = field(default_factory=list)


class Memo:
    """
    What the functions of one ``module.run`` came to, in their order.

    A state that is begun again at the end calls none of them a second time.
    """

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self._next = 0

    def rewind(self) -> None:
        self._next = 0

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        number = self._next
        self._next += 1
        if number not in self._done:
            self._done[number] = function(*args, **kwargs)
        return self._done[number]


@dataclass
class Pending:
    """A state whose own part waits for the end of the run."""

    state: Any
    low: dict[str, Any]
    level: Level
    deferral: Deferral
    placed: dict[str, Any] | None
    placeholder: dict[str, Any]
    memo: Memo | None = None


@dataclass(slots=True)
class Run:
    """One state run with the runs nested in it."""

    levels: list[Level] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    # States that are being called, one in the other, with everything around them.
    calling: int = 0
    # Whether the next state may be called with no more around it than nearly all need, and
    # the one that is.
    plain: bool = False
    low: dict[str, Any] | None = None
    # Whether the ledger keeps what the states of this run did.
    recorded: bool = False
    finishing: bool = False
    # In the process of a parallel state, which has to write down what it leaves.
    remote: bool = False
    # What an upgrade of everything leaves alone just now.
    excluded: frozenset[str] = frozenset()
    memo: Memo | None = None
    restart: str = ""
    restart_asked: bool = False
    restarted: list[dict[str, Any]] = field(default_factory=list)

    @property
    def inside(self) -> bool:
        """Whether a state is being called: only there a Deferral is caught."""
        return bool(self.calling) or self.low is not None


local = threading.local()


def current() -> Run | None:
    run: Run | None = getattr(local, "run", None)
    return run


@contextlib.contextmanager
def enter(owner: Any) -> Iterator[tuple[Run, Level]]:
    """Yield the run, new where none is under way, and a new level of it."""
    run = current()
    outermost = run is None
    if run is None:
        run = local.run = Run()
    level = Level(owner=owner, first=len(run.pending))
    run.levels.append(level)
    try:
        yield run, level
    except BaseException:
        # Whatever was left for the end has no result any more that could tell of it.
        del run.pending[level.first :]
        raise
    finally:
        run.levels.pop()
        if outermost:
            local.run = None
