"""
Salt's cache of the master, with any back end, for the data of safeupdate.


Documents are text in ASCII: back ends differ in the bytes and texts that they return, and names and
reasons come from minions. A checksum is stored with each document, so that a half one, or one from
another program, is recognised. Keys are short and never end in "p": the lists of Salt before 3008
cut that off.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import zlib
from collections.abc import Mapping
from typing import Any

import salt.cache
from salt.exceptions import SaltDeserializationError

from ..core.errors import CacheError, RecordError
from ..core.host.files import give_to_owner, make_private

log = logging.getLogger(__name__)

# The directory of all banks. Users who may list it may read them.
ROOT = "safeupdate"
SCHEMA = 1


class Cache:
    """Banks of documents. Every method raises CacheError if the back end cannot be used."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        # Not by the factory: with 'memcache_expire_seconds' it would return data from before
        # another process wrote.
        self._cache = salt.cache.Cache(dict(opts))
        self._local = (
            os.path.join(str(opts["cachedir"]), ROOT) if self._cache.driver == "localfs" else ""
        )

    def write(self, bank: str, key: str, document: object) -> None:
        """Store a document; a reader finds the old one or the new one."""
        if self._local:
            self._tell_if_away(bank, write=True)
        text = json.dumps(document, separators=(",", ":"))
        packed = base64.b64encode(zlib.compress(text.encode("ascii"), 1)).decode("ascii")
        self._call("store", bank, key, {"schema": SCHEMA, "packed": packed})
        if self._local:
            path = os.path.join(os.path.dirname(self._local), bank, f"{key}.p")
            give_to_owner(os.path.dirname(path))
            give_to_owner(path)

    def read(self, bank: str, key: str) -> Any:
        """Return a document; None if it is missing. Raises RecordError if it is unreadable."""
        packed = self.packed(bank, key)
        return None if packed is None else self.unpacked(bank, key, packed)

    def packed(self, bank: str, key: str) -> str | None:
        """Return a document in its stored form: the same text is the same document."""
        if self._local:
            self._tell_if_away(bank)
        try:
            stored = self._call("fetch", bank, key)
        except SaltDeserializationError as err:
            raise self.damaged(bank, key, str(err)) from err
        if stored == {}:
            return None
        packed = stored.get("packed") if isinstance(stored, Mapping) else None
        if isinstance(packed, bytes):
            packed = packed.decode("latin-1")
        if not isinstance(packed, str):
            raise self.damaged(bank, key, "safeupdate has not written it")
        if stored.get("schema") != SCHEMA:
            raise self.damaged(bank, key, "another version of the extension has written it")
        return packed

    def unpacked(self, bank: str, key: str, packed: str) -> Any:
        """Return the document that :meth:`packed` has returned."""
        try:
            return json.loads(
                zlib.decompress(base64.b64decode(packed, validate=True)),
                parse_constant=_no_number,
            )
        except (ValueError, TypeError, zlib.error, RecursionError) as err:
            raise self.damaged(bank, key, str(err)) from err

    def remove(self, bank: str, key: str) -> None:
        """Remove a document, if it is there."""
        if self._local:
            self._tell_if_away(bank)
        self._call("flush", bank, key)

    def set_aside(self, bank: str, key: str) -> None:
        """Keep an unreadable document under another key, one for each key, for a later look."""
        try:
            self._call("store", bank, f"{key}.aside", self._call("fetch", bank, key))
        except SaltDeserializationError:
            if self._local:
                path = os.path.join(os.path.dirname(self._local), bank, f"{key}.p")
                os.replace(path, f"{path}.aside")

    def keys(self, bank: str) -> list[str]:
        """Return the keys of a bank. Some of them may not be ours."""
        if self._local:
            self._tell_if_away(bank)
        return [str(key) for key in self._call("list", bank) or ()]

    def damaged(self, bank: str, key: str, why: str) -> RecordError:
        """Return the error that says that a document is unreadable, and what to do about it."""
        return RecordError(
            f"'{key}' in the bank '{bank}' of the master's cache cannot be read: {why}. It is left "
            f"as it is. If it cannot be mended, 'salt-run cache.flush {bank} {key}' removes it."
        )

    def _tell_if_away(self, bank: str, *, write: bool = False) -> None:
        """Raise CacheError if local files would take "may not look" for "is not there"."""
        try:
            if write:
                make_private(self._local)
            os.stat(os.path.join(os.path.dirname(self._local), bank, "."))
        except FileNotFoundError:
            pass
        except OSError as err:
            raise self._away(err) from err

    def _call(self, what: str, *args: object) -> Any:
        try:
            return getattr(self._cache, what)(*args)
        except SaltDeserializationError:
            raise
        except Exception as err:
            # Each back end has its own errors: from its client, the network, its options.
            raise self._away(err) from err

    def _away(self, err: Exception) -> CacheError:
        driver = self._cache.driver
        place = f" below {self._local}" if self._local else ""
        return CacheError(
            f"The cache of the master ('cache: {driver}'{place}) cannot be used: "
            f"{str(err) or type(err).__name__}. Nothing was started. Rollouts continue when it "
            "answers again; check that it runs, that this user may use it, and that it has space."
        )


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")
