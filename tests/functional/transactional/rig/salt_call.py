#!/usr/bin/env python3
"""``salt-call`` as pip installs it; its loaders begin with what earlier ones have found."""

import sys

sys.path.append("/usr/local/sbin")
import loading

sys.path.remove("/usr/local/sbin")
from salt.scripts import salt_call

if __name__ == "__main__":
    loading.read_once()
    with loading.Kept("/usr/local/sbin/loaders"):
        sys.exit(salt_call())
