"""Package files whose names say all that there is to know."""

import os

__virtualname__ = "lowpkg"


def __virtual__():
    if "fake_packages" not in __opts__:
        return False, "the option fake_packages names no database"
    return __virtualname__


def bin_pkg_info(path, saltenv="base"):
    name, version = os.path.basename(path).removesuffix(".deb").split("_", 1)
    return {"name": name, "version": version, "arch": "all"}


def unpurge(*packages):
    return {}
