"""Data as one line of JSON that comes back with the types that it had."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterable
from typing import Any

# A dict with this key stands for something that JSON has no form for.
_TAG = "__safeupdate__"


def encode(value: Any, *, strict: bool) -> bytes:
    """
    Return *value* as one line.

    Values that JSON does not have (bytes, keys that are not strings) are tagged. Other types raise
    TypeError when *strict*, and become a string otherwise.
    """
    text = json.dumps(
        _tagged(value),
        ensure_ascii=False,
        separators=(",", ":"),
        default=_refuse if strict else _say,
    )
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> Any:
    """Return what :func:`encode` was given."""
    return json.loads(data.decode("utf-8", "surrogatepass"), object_hook=_untagged)


def _tagged(value: Any) -> Any:
    """Return *value* itself if JSON can say it, so that a large result is not copied."""
    if isinstance(value, bytes):
        return {_TAG: "bytes", "data": base64.b64encode(value).decode("ascii")}
    if isinstance(value, (set, frozenset)):
        return sorted((_tagged(item) for item in value), key=repr)
    if isinstance(value, (list, tuple)):
        new = [_tagged(item) for item in value]
        return value if _same(new, value) else new
    return _tagged_dict(value) if isinstance(value, dict) else value


def _tagged_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    items = [_tagged(item) for item in value.values()]
    if _TAG in value or any(not isinstance(key, str) for key in value):
        pairs = zip(value, items, strict=True)
        return {_TAG: "dict", "data": [[_tagged(key), item] for key, item in pairs]}
    return value if _same(items, value.values()) else dict(zip(value, items, strict=True))


def _same(new: Iterable[Any], old: Iterable[Any]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))


def _untagged(document: dict[str, Any]) -> Any:
    kind = document.get(_TAG)
    if kind is None:
        return document
    data = document.get("data")
    if kind == "bytes" and isinstance(data, str):
        return base64.b64decode(data, validate=True)
    if kind == "dict" and isinstance(data, list):
        return {_key(key): item for key, item in data}
    raise ValueError(f"unknown tag {str(kind)[:50]!r}")


def _key(key: Any) -> Any:
    return tuple(_key(part) for part in key) if isinstance(key, list) else key


def _refuse(value: object) -> Any:
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _say(value: object) -> str:
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    return repr(value)
