"""The subcommands of ``./dev``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from devtools import ending, host, progress
from devtools.cache import Cache, default_root
from devtools.command import REPO, ToolError
from devtools.experiment import SUPPORTED_PAIRS

MINIMUM_PYTHON = (3, 10)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="dev", description="Developer commands of this project.")
    commands = top.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="update a minion with plain Salt and with ours")
    _pairs(demo, SUPPORTED_PAIRS[-1])
    demo.add_argument("--timeline", action="store_true", help="print every job and moment, too")
    demo.add_argument("--only", choices=("plain", "extension"), help="run one of the two")
    demo.add_argument("--logs", type=Path, help="keep the logs of the runs in this directory")

    test = commands.add_parser("test", help="lint and all tests; other arguments go to pytest")
    test.add_argument("--only", default="", help="of: unit,functional,integration,lab")
    test.add_argument("--salt", action="append", default=[], help="Salt series, repeatable")

    soak = commands.add_parser("soak", help="long tests; other arguments as for test")
    _pairs(soak, SUPPORTED_PAIRS[0])
    soak.add_argument("--rounds", type=int, default=10)
    soak.add_argument("--no-tests", action="store_true", help="only the updates")

    bench = commands.add_parser("bench", help="run the benchmarks")
    bench.add_argument("--salt", action="append", default=[], help="Salt series, repeatable")
    bench.add_argument("--only", action="append", default=[], help="a benchmark, repeatable")
    bench.add_argument("--record", action="store_true", help="write what it prints into the docs")

    commands.add_parser("lint", help="formatting, style and types")
    lab = commands.add_parser("lab", help="build everything that the lab and the tests need")
    lab.set_defaults(command="lab")
    release = commands.add_parser("release", help="build wheel, source archive, deb and rpm")
    release.add_argument("--out", type=Path, default=REPO / "dist", help="directory (./dist)")
    text = "gpg's name of the key that signs the checksums (default $SAFEUPDATE_SIGN_KEY)"
    release.add_argument("--sign", default=os.environ.get("SAFEUPDATE_SIGN_KEY", ""), help=text)
    clean = commands.add_parser("clean", help="remove what ended runs left behind")
    clean.add_argument("--cache", action="store_true", help="remove the cache, too")
    return top


def _pairs(command: argparse.ArgumentParser, default: tuple[str, str]) -> None:
    text = f"versions OLD:NEW (default {':'.join(default)}), repeatable"
    command.add_argument("--pair", action="append", default=[], help=text)
    command.add_argument("--both", action="store_true", help="both supported pairs")


def main(arguments: list[str]) -> int:
    options, rest = parser().parse_known_args(arguments)
    if rest and options.command not in ("test", "soak"):
        parser().error(f"unknown arguments: {' '.join(rest)}")
    # Imported late, so that --help needs nothing of it.
    from devtools import demo, lint, longrun, plan, release, testrun

    if options.command in ("demo", "soak"):
        chosen = [demo.parse_pair(text) for text in options.pair]
        if options.both or not chosen:
            # The master is of the newest version: the demo's pair needs no third one.
            default = SUPPORTED_PAIRS[-1:] if options.command == "demo" else SUPPORTED_PAIRS[:1]
            chosen += SUPPORTED_PAIRS if options.both else default
        if options.command == "demo":
            return demo.demo(
                chosen, only=options.only, logs=options.logs, timeline=options.timeline
            )
        return longrun.soak(chosen, rest, rounds=options.rounds, tests=not options.no_tests)
    if options.command == "test":
        only = [kind for kind in options.only.split(",") if kind]
        if unknown := [kind for kind in only if kind not in plan.KINDS]:
            raise ToolError(f"--only takes {', '.join(plan.KINDS)}; not {', '.join(unknown)}")
        return testrun.run_tests(rest, only=only, versions=options.salt)
    if options.command == "bench":
        return longrun.bench(options.salt, options.only, record=options.record)
    if options.command == "lint":
        return 1 if lint.lint(Cache()) else 0
    if options.command == "release":
        return release.release(options.out, options.sign)
    if options.command == "lab":
        testrun.build_everything(Cache())
        return 0
    return clean(cache=options.cache)


def clean(*, cache: bool) -> int:
    found = ending.clean()
    for path in found:
        progress.say(f"removed {path}")
    if cache:
        root = default_root()
        shutil.rmtree(root, ignore_errors=True)
        progress.say(f"removed {root}")
    progress.say(f"clean: {len(found)} leftovers of earlier runs")
    return 0


if __name__ == "__main__":
    if sys.version_info < MINIMUM_PYTHON:
        sys.exit(f"dev: needs Python 3.10 or newer, this is {sys.version.split()[0]}")
    host.extend_path()
    sys.exit(ending.run(lambda: main(sys.argv[1:])))
