"""Paths of an archive: whether they stay inside of the tree that it is unpacked to."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import VerificationError, one_line

# The limits of Linux.
_LONGEST_NAME = 255
_LONGEST_PATH = 4000


def refused(name: object, reason: str) -> VerificationError:
    """Return the error that refuses a whole archive because of one entry."""
    return VerificationError(
        one_line(
            f"The archive is refused because of {str(name)[:200]!r}: {reason}. Nothing of it was "
            "kept; use a build that was made as the documentation says."
        )
    )


def path(name: str) -> str:
    """
    Return the path of an entry in one form, ``.`` for the top itself.

    Raise VerificationError if it does not stay inside, or another reader could read it differently.
    """
    if not name or not name.isprintable():
        raise refused(name, "its name is empty, or has characters that are not visible")
    if name.startswith("/") or "\\" in name:
        raise refused(name, "its path is absolute, or has a backslash")
    parts = name.split("/")
    if ".." in parts:
        raise refused(name, "its path leads up")
    if len(name.encode()) > _LONGEST_PATH or any(len(p.encode()) > _LONGEST_NAME for p in parts):
        raise refused(name, "its path is too long")
    plain = name.removeprefix("./").removesuffix("/") or "."
    if plain != "." and not {"", "."}.isdisjoint(plain.split("/")):
        raise refused(name, "its path has parts that are empty, or a dot")
    return plain


def link(name: str, target: str) -> None:
    """
    Raise VerificationError unless the symbolic link *name* stays inside, wherever others lead.

    It may lead up from its place, and then down. A later step up could begin at the target of
    another link, so the names alone would prove nothing.
    """
    if not target or not target.isprintable() or "\\" in target:
        raise refused(name, "its target is empty, or has characters that are not visible")
    if target.startswith("/"):
        raise refused(name, "it is a link to an absolute path")
    if len(target.encode()) > _LONGEST_PATH:
        raise refused(name, "its target is too long")
    if "//" in target:
        # Other programs have misread such a target.
        raise refused(name, "its target has two slashes at once")
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    if ".." in parts[up:]:
        raise refused(name, "it is a link that leads down and up again")
    if up > name.count("/"):
        raise refused(name, "it is a link that leads out of the tree")


def above(name: str) -> Iterator[str]:
    """Yield the directories that contain an entry, the outermost first."""
    parts = name.split("/")[:-1]
    for number in range(1, len(parts) + 1):
        yield "/".join(parts[:number])
