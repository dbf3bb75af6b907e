"""
Stand before ``systemctl``, ``shutdown`` and the like inside a transaction.

What they are asked to restart or to reboot is written down for the time after the transaction:
inside, systemctl ignores it and reports success. Everything else is passed to the system's own
program.
"""

import json
import os
import sys

UNIT_VERBS = (
    "condrestart",
    "force-reload",
    "reload",
    "reload-or-restart",
    "restart",
    "start",
    "stop",
    "try-reload-or-restart",
    "try-restart",
)
SYSTEM_VERBS = ("halt", "kexec", "poweroff", "reboot", "soft-reboot")
# Options of systemctl that take the next word as their value.
VALUED = ("-H", "-M", "-P", "-n", "-o", "-p", "-s", "-t", "--host", "--machine", "--output")


def wish(name: str, words: list[str]) -> "dict[str, object] | None":
    """Return what program *name* is asked for with *words*; ``None``: nothing to write down."""
    if name == "systemctl":
        return _systemctl(words)
    if name == "rebootmgrctl":
        return {"action": words[0]} if words[:1] in (["reboot"], ["soft-reboot"]) else None
    if name == "shutdown":
        return _shutdown(words)
    if name in ("init", "telinit"):
        level = {"0": "poweroff", "6": "reboot"}.get(words[0] if words else "")
        return {"action": level} if level else None
    return {"action": name} if name in SYSTEM_VERBS else None


def _systemctl(words: list[str]) -> "dict[str, object] | None":
    plain: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in VALUED:
            skip = True
        elif not word.startswith("-"):
            plain.append(word)
    if not plain:
        return None
    verb, units = plain[0], plain[1:]
    if verb in UNIT_VERBS and units:
        return {"action": verb, "units": units}
    return {"action": verb} if verb in SYSTEM_VERBS else None


def _shutdown(words: list[str]) -> "dict[str, object] | None":
    flags = {
        letter for word in words if word[:1] == "-" and word[:2] != "--" for letter in word[1:]
    }
    flags |= {word for word in words if word.startswith("--")}
    if flags & {"c", "k", "--show"}:
        return None
    if flags & {"r", "--reboot"}:
        return {"action": "reboot"}
    return {"action": "halt" if flags & {"H", "--halt"} else "poweroff"}


def main(argv: list[str]) -> int:
    """Write a wish down, or become the real program."""
    here = os.path.dirname(os.path.abspath(argv[0]))
    name = os.path.basename(argv[0])
    asked = wish(name, argv[1:])
    if asked is not None:
        path = os.path.join(os.path.dirname(here), "wishes")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "a", encoding="utf-8") as sink:
            sink.write(json.dumps(asked) + "\n")
        return 0
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        program = os.path.join(place, name)
        if os.path.abspath(place) != here and os.access(program, os.X_OK):
            os.execv(program, [program, *argv[1:]])  # noqa: S606
    print(f"{name}: command not found", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv))
