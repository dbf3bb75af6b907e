#!/usr/bin/env python3
"""
Stand in for ``systemctl``: in a chroot it ignores what needs systemd and reports success.

What concerns files is done by the real one, as in a chroot.
"""

import os
import sys

OF_FILES = ("disable", "enable", "is-enabled", "mask", "unmask", "--version")

if os.environ.get("TRANSACTIONAL_UPDATE"):
    if set(OF_FILES) & set(sys.argv):
        os.environ["SYSTEMD_OFFLINE"] = "1"
        os.execv("/usr/bin/systemctl", sys.argv)
    print(f"Running in chroot, ignoring command '{sys.argv[1]}'", file=sys.stderr)
    sys.exit(0)
with open("/run/rig/systemctl", "a", encoding="utf-8") as log:
    log.write(" ".join(sys.argv[1:]) + "\n")
if sys.argv[1:2] == ["list-jobs"] and os.path.exists("/run/rig/rebooted"):
    print("123 reboot.target start waiting")
sys.exit("broken" in " ".join(sys.argv))
