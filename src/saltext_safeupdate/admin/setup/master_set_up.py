"""What sets a master up by one command: its configuration, and the SLS in its file roots."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...core.errors import SafeUpdateError
from ...core.extensions import ourselves
from ...core.host import files, rights
from . import set_up

_MARK = "# From saltext-safeupdate: 'salt-run safeupdate.setup' writes it again.\n"
_BY_HAND = (
    "By hand, this belongs into the configuration of the master: "
    "{{engines: [safeupdate_redeliver: {{window: {window:g}}}], "
    "peer_run: {{.+: [safeupdate.master_version]}}}}"
)


def carry_out(
    opts: Mapping[str, Any],
    *,
    window: object,
    config_file: str | None,
    test: bool,
    unfit: str = "",
) -> dict[str, Any]:
    """
    Set this master up; return what was, or with *test* would be, changed, and what is left to do.

    *opts* are the master's, *unfit* is why none of it works with them. Raises SafeUpdateError, and
    has written nothing: with the lines to add by hand if that cannot be done without taking
    something away, or with what lets this user write where it may not.
    """
    main_file = str(opts.get("conf_file") or "/etc/salt/master")
    try:
        config = set_up.master_config(main_file, config_file, window, "salt-run safeupdate.setup")
    except SafeUpdateError as err:
        if not isinstance(window, int | float):
            raise
        raise SafeUpdateError(f"{err} {_BY_HAND.format(window=window)}") from err
    wanted, kept = _states(opts)
    changes = config.changes()
    changes |= {
        path: {"old": files.text(path) and "another version", "new": "SLS"} for path in wanted
    }
    restart = config.differs
    # Before anything is written: a master that is half set up looks as if it were set up.
    if closed := rights.unwritable(changes):
        raise SafeUpdateError(
            f"{closed} Nothing was written. {rights.remedy(changes)}. Then call this again."
        )
    if not test:
        for path, text in wanted.items():
            _write(path, text)
        # Last: until it is written, another run says that the master has to be restarted.
        if restart:
            config.write()
    done = "would be" if test else "were"
    said = [f"{len(changes)} files {done} written."] if changes else []
    said += [] if changes or unfit else ["The master is set up."]
    said += [f"{warning}" for warning in config.warnings]
    if restart:
        said.append("Restart salt-master once: it reads its engines when it starts.")
    said += kept
    if unfit:
        said.append(
            f"{unfit} As it is, nothing is published again and rollouts stand still; jobs run as "
            "with plain Salt."
        )
    return {
        "result": False if unfit else None if test and changes else True,
        "changes": changes,
        "comment": " ".join(said),
    }


def _states(opts: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the SLS that differ, by where they belong, and what is left as it is, in sentences."""
    source = os.path.join(ourselves.home(), "file_roots", "safeupdate")
    roots = (opts.get("file_roots") or {}).get("base") or []
    backends = opts.get("fileserver_backend") or ["roots"]
    if not roots or not {"roots", "file"} & set(backends):
        return {}, [
            "The SLS were not copied: this master has no directory of the environment 'base'. They "
            f"are in {source}; 'state.single safeupdate.enabled' needs none."
        ]
    wanted, kept = {}, []
    for name in sorted(os.listdir(source)):
        text = files.text(os.path.join(source, name))
        path = os.path.join(str(roots[0]), "safeupdate", name)
        if os.path.exists(path) and not os.access(path, os.R_OK, effective_ids=True):
            kept.append(f"{path} does not change: the user {rights.user()} may not read it.")
            continue
        now = files.text(path)
        if now in (text, _MARK + text):
            continue
        if now and not now.startswith(_MARK):
            kept.append(f"{path} was written by others and does not change.")
        else:
            wanted[path] = _MARK + text
    return wanted, kept


def _write(path: str, text: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        files.write_atomic(path, text, mode=0o644)
    except OSError as err:
        raise SafeUpdateError(
            f"{path} cannot be written: {err.strerror or err}. Check its directory, then run it "
            "again."
        ) from err
