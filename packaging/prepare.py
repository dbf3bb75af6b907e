#!/usr/bin/python3
"""
Write ``debian/`` and ``saltext-safeupdate.spec`` at the top of the source.

The version is that of the source. Who builds is taken from DEBFULLNAME and DEBEMAIL, the time
from SOURCE_DATE_EPOCH, by default now.
"""

from __future__ import annotations

import email.utils
import os
import re
import shutil
import sys
import time
from pathlib import Path

TOP = Path(__file__).parents[1]
PACKAGING = TOP / "packaging"


def version() -> str:
    """Return the version of the source, from the one place that says it."""
    text = (TOP / "src/saltext_safeupdate/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit("prepare: src/saltext_safeupdate/__init__.py has no __version__")
    return found[1]


def main() -> None:
    try:
        maintainer = f"{os.environ['DEBFULLNAME']} <{os.environ['DEBEMAIL']}>"
    except KeyError as err:
        raise SystemExit(f"prepare: {err} is not set; it says who builds the package") from None
    moment = float(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    words = {
        # What sorts before the version for pip does so for package managers, too.
        "@VERSION@": version().replace(".dev", "~dev"),
        "@SOURCE@": version(),
        "@MAINTAINER@": maintainer,
        "@DATE@": email.utils.formatdate(moment),
        "@DAY@": time.strftime("%a %b %d %Y", time.gmtime(moment)),
    }
    shutil.copytree(PACKAGING / "debian", TOP / "debian", dirs_exist_ok=True)
    shutil.copy(PACKAGING / "rpm/saltext-safeupdate.spec", TOP)
    for path in (*(TOP / "debian").glob("*"), TOP / "saltext-safeupdate.spec"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            path.write_text(re.sub(r"@[A-Z]+@", lambda found: words[found[0]], text), "utf-8")
    print(f"prepare: debian/ and saltext-safeupdate.spec are of version {version()}")


if __name__ == "__main__":
    sys.exit(main())
