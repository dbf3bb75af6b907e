"""The offers of a source of builds: each valid manifest in it, and why others are not valid."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Protocol

from ..errors import SafeUpdateError, VerificationError
from ..frozen import frozen
from ..host.command import Run
from ..host.files import open_regular, others_on_the_way
from . import manifest, signature
from .manifest import Manifest

# How many builds of a source are read at most.
MOST_BUILDS = 200


class Source(Protocol):
    """A directory with manifests and the files that they name."""

    place: str

    def names(self) -> Sequence[str]:
        """Return the names of its files. Raise SafeUpdateError if it cannot be read."""
        ...

    def path(self, name: str) -> str:
        """Return a readable path of a file. Raise SafeUpdateError if it is not available."""
        ...


class Directory:
    """A directory of this host, to which nobody writes but root and this user."""

    def __init__(self, place: str) -> None:
        self.place = os.path.normpath(place)

    def names(self) -> Sequence[str]:
        try:
            self._refuse_of_others(self.place)
            return os.listdir(self.place)
        except OSError as err:
            raise SafeUpdateError(
                f"The builds in {self.place} cannot be listed: {err.strerror}. Nothing was "
                "changed; create that directory, or set 'safeupdate:slots_source' to another one."
            ) from err

    def path(self, name: str) -> str:
        found = os.path.join(self.place, name)
        # Somebody who reads it finds out that it is missing.
        with contextlib.suppress(OSError):
            self._refuse_of_others(found)
        return found

    def _refuse_of_others(self, path: str) -> None:
        """Raise SafeUpdateError if others could change it after it was checked, or OSError."""
        if why := others_on_the_way(path):
            raise SafeUpdateError(
                f"The builds in {self.place} are not used: {why}. Nothing was changed; let only "
                "root write there, and to the directories above it."
            )


@frozen
class Offer:
    """A manifest of a source, by its file name; ``problem`` says why it is not valid, if so."""

    file: str
    manifest: Manifest | None = None
    signed_by: str = ""
    problem: str = ""


def offers(source: Source, *, keyring: str, run: Run) -> list[Offer]:
    """
    Return the offers of the source, by name. With a *keyring*, one of its keys must have signed.

    If it has the manifest of wheels and no wheel, they are in an index: :class:`.index.Index`.
    Only manifests and signatures are downloaded. Raise SafeUpdateError if the source cannot be
    read.
    """
    names = {str(name) for name in source.names()}
    found = sorted(name for name in names if name.endswith(manifest.SUFFIX))
    told = [_offer(source, name, names, keyring, run) for name in found[:MOST_BUILDS]]
    if len(found) > MOST_BUILDS:
        told.append(
            Offer(
                file=found[MOST_BUILDS],
                problem=f"The source has more than {MOST_BUILDS} manifests; the rest is left out. "
                "Remove builds that are no longer used.",
            )
        )
    return told


def _offer(source: Source, name: str, names: set[str], keyring: str, run: Run) -> Offer:
    try:
        content = _read(source.path(name))
        signed_by = _signer(source, name, names, content, keyring, run) if keyring else ""
        found = manifest.parse(content)
        missing = sorted(found.files.keys() - names)
        if missing and not (found.kind == "wheels" and len(missing) == len(found.files)):
            raise VerificationError(
                f"The source does not have {missing[0]}, which belongs to it. Copy it there."
            )
    except SafeUpdateError as err:
        return Offer(file=name, problem=str(err))
    return Offer(file=name, manifest=found, signed_by=signed_by)


def _signer(
    source: Source, name: str, names: set[str], content: bytes, keyring: str, run: Run
) -> str:
    signed = f"{name}{signature.SUFFIX}"
    if signed not in names:
        raise VerificationError(
            f"The manifest has no signature {signed}, and 'safeupdate:slots_keyring' requires one. "
            "Sign it."
        )
    path = source.path(signed)
    # gpgv would open any kind of file.
    os.close(_opened(path, "signature"))
    return signature.signer(content, path, keyring, run)


def _read(path: str) -> bytes:
    with open(_opened(path, "manifest"), "rb") as file:
        try:
            return file.read(manifest.LONGEST + 1)
        except OSError as err:
            raise SafeUpdateError(f"The manifest cannot be read: {err.strerror}.") from err


def _opened(path: str, what: str) -> int:
    try:
        fd = open_regular(path)
    except OSError as err:
        raise SafeUpdateError(f"The {what} cannot be read: {err.strerror}.") from err
    if fd is None:
        raise SafeUpdateError(f"The {what} cannot be read: it is not a regular file.")
    return fd
