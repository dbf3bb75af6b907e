"""Paths of an archive: what stays inside of the tree that it is unpacked to."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import VerificationError, one_line

# What Linux takes.
_LONGEST_NAME = 255
_LONGEST_PATH = 4000


def refused(name: object, reason: str) -> VerificationError:
    """Return the error that refuses a whole archive because of one entry."""
    return VerificationError(
        one_line(
            f"The archive is refused because of {str(name)[:200]!r}: {reason}. Nothing of it was "
            "kept; take a build that was made as the documentation says."
        )
    )


def path(name: str) -> str:
    """
    Return the path of an entry in one form, ``.`` for the top itself.

    Raise VerificationError if it does not stay inside, or could mean another thing to another
    reader.
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

    It may lead up from where it is, and down from there. What leads up behind that could begin
    where another link leads, so that nothing can be said by the names alone.
    """
    if not target or not target.isprintable() or "\\" in target:
        raise refused(name, "its target is empty, or has characters that are not visible")
    if target.startswith("/"):
        raise refused(name, "it is a link to an absolute path")
    if len(target.encode()) > _LONGEST_PATH:
        raise refused(name, "its target is too long")
    if "//" in target:
        # Others have got lost on the way through such a one.
        raise refused(name, "its target has two slashes at once")
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    if ".." in parts[up:]:
        raise refused(name, "it is a link that leads down and up again")
    if up > name.count("/"):
        raise refused(name, "it is a link that leads out")


def above(name: str) -> Iterator[str]:
    """Yield the directories that an entry is in, the outermost first."""
    parts = name.split("/")[:-1]
    for number in range(1, len(parts) + 1):
        yield "/".join(parts[:number])
