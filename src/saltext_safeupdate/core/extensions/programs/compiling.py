"""
Print the byte code of modules, and write no file.

The first argument is a pattern of paths that are left out, the others are directories. A line has
the tag of this interpreter, the byte code in base64, and the path of the source.
"""

from __future__ import annotations

import base64
import importlib.util
import marshal
import os
import re
import struct
import sys


def line(path: str) -> str:
    """Return the line of a source. Raise OSError, ValueError or SyntaxError."""
    seen = os.stat(path)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    # As in PEP 552: no flags, and the time and the size of the source.
    head = struct.pack("<III", 0, int(seen.st_mtime) & 0xFFFFFFFF, seen.st_size & 0xFFFFFFFF)
    content = base64.b64encode(importlib.util.MAGIC_NUMBER + head + marshal.dumps(code))
    return f"{sys.implementation.cache_tag} {content.decode()} {path}"


if __name__ == "__main__":
    left_out = re.compile(sys.argv[1])
    for top in sys.argv[2:]:
        for place, _, names in os.walk(top):
            for name in names:
                path = os.path.join(place, name)
                if name.endswith(".py") and not left_out.search(path):
                    try:
                        print(line(path))
                    except (OSError, SyntaxError, ValueError, RecursionError):
                        # Files for other versions of Python cannot be compiled, nor are needed.
                        continue
