"""Whether dnf and zypper check the signatures of the packages in their repositories."""

from __future__ import annotations

import configparser
import glob
import os

_NO = ("0", "no", "false", "off")


def text(path: str) -> str:
    """Return the text of a settings file; empty without a file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def unchecked(settings: str, directory: str, *, default: bool) -> str | None:
    """
    Say which repository has packages whose signatures are not checked; None: none has.

    *settings* is the front end's own file, *directory* has the files of the repositories. *default*
    counts if neither says anything.
    """
    paths = sorted(glob.glob(os.path.join(glob.escape(directory), "*.repo")))
    parsers = {}
    for path in (settings, *paths):
        parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
        try:
            parser.read_string(text(path), path)
        except configparser.Error as err:
            return (
                f"it cannot be told whether signatures are checked: {path} cannot be read ({err})"
            )
        parsers[path] = parser
    main = parsers.pop(settings)
    usual = _checks(main["main"], default) if main.has_section("main") else default
    for path, parser in parsers.items():
        for name in parser.sections():
            enabled = parser[name].get("enabled", "1").strip().lower() not in _NO
            if enabled and not _checks(parser[name], usual):
                return f"signatures of packages are not checked: repository {name} in {path}"
    return None


def _checks(section: configparser.SectionProxy, default: bool) -> bool:
    said = section.get("pkg_gpgcheck") or section.get("gpgcheck")
    return default if said is None else said.strip().lower() not in _NO
