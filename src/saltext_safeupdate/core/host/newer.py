"""
Changes by others to the files that an update has to put back.

The state that the update itself leaves is noted when it has made all of its changes. Later
differences were written by a job, or by the administrator.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import SafeUpdateError, VerificationError
from . import file_state
from .files import write_atomic

_MARK = "left.json"


def mark(directory: str, roots: Sequence[str]) -> None:
    """
    Note in *directory* what is below *roots*, as what the update has left.

    Only the first call does it. Raises SafeUpdateError.
    """
    path = os.path.join(directory, _MARK)
    if os.path.exists(path):
        return
    try:
        left = dict(file_state.each_of(roots, file_state.fingerprint))
        write_atomic(path, json.dumps(left, indent=1))
    except OSError as err:
        raise SafeUpdateError(
            f"What the update has left cannot be noted in {directory}: {err}. A rollback "
            "would put back all files as they were before."
        ) from err


def marked(directory: str) -> dict[str, str] | None:
    """Return what :func:`mark` has noted; None if it was not called. Raises VerificationError."""
    try:
        with open(os.path.join(directory, _MARK), encoding="utf-8") as file:
            return {str(path): str(each) for path, each in json.load(file).items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as err:
        raise VerificationError(
            f"The notes of the update about its changes cannot be read in {directory} "
            f"({type(err).__name__}). Nothing is restored; the copies are in that directory."
        ) from err


@dataclass(frozen=True, kw_only=True)
class Judge:
    """
    Tells whose doing it is that a path is not as it was.

    *before*, *left* and *present* have the :func:`file_state.fingerprint` of each path that was
    there before the update, after it, and at the rollback. *keep* are the paths below which the
    version of somebody else stays.
    """

    before: Mapping[str, str]
    left: Mapping[str, str]
    present: Mapping[str, str]
    keep: Sequence[str]

    def stays(self, path: str) -> bool:
        """Tell whether it is left as somebody else has made it. The update did not touch it."""
        before, left, present = self._of(path)
        return before == left != present and is_below(path, self.keep)

    def is_newer(self, path: str) -> bool:
        """Tell whether there is a version of somebody else that does not stay."""
        before, left, present = self._of(path)
        return present not in ("", before, left) and not self.stays(path)

    def _of(self, path: str) -> tuple[str, str, str]:
        return self.before.get(path, ""), self.left.get(path, ""), self.present.get(path, "")


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Tell whether a path is one of these, or below one."""
    return any(path == root or path.startswith(root + os.sep) for root in roots)
