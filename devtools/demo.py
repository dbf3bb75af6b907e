"""``./dev demo``: the same update by plain Salt and with the extension, side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devtools import host, page, picture, progress, report, venvs
from devtools.command import ToolError
from devtools.experiment import SUPPORTED_PAIRS, Experiment, pairs
from devtools.lab.container import Lab
from devtools.lab.recipes import salt_of
from devtools.outcome import Outcome

Pair = tuple[str, str]
# Seconds after which systemd kills a service that does not stop: Fedora's default, half of the
# usual one. An update by plain Salt waits for itself that long.
STOP_TIMEOUT = 45


def parse_pair(text: str) -> Pair:
    """Turn ``3006.28:3007.15`` into a pair of versions that the lab has."""
    old, colon, new = text.partition(":")
    known = pairs()
    if not colon or old not in known or new not in known:
        raise ToolError(f"no such pair: {text}; write OLD:NEW with versions of {', '.join(known)}")
    return old, new


def demo(
    chosen: list[Pair],
    *,
    only: str | None = None,
    logs: Path | None = None,
    timeline: bool = False,
) -> int:
    """
    Run the experiments and print them; return non-zero if the extension lost something.

    With *timeline*, print every job, state and moment; a page has them in any case.
    """
    wrong: list[str] = []
    with Lab() as lab:
        prepare(lab, chosen)
        site = venvs.extension(lab.cache.cache, lab.run_dir.path / "build")
        for old, new in chosen:
            outcomes = _run_pair(lab, old, new, site, only)
            if timeline:
                print("\n" + report.side_by_side(outcomes), flush=True)
            print("\n" + picture.picture(outcomes), flush=True)
            where = lab.cache.cache.root / f"demo-{old}-{new}.html"
            where.write_text(page.page(outcomes), encoding="utf-8")
            print(f"The timelines as a page: {where}", flush=True)
            _save(logs, outcomes)
            for out in outcomes:
                if out.extension:
                    wrong += [f"{old} -> {new}: {text}" for text in out.verdict()]
    if only == "plain":
        print("demo: plain Salt only, nothing to judge")
        return 0
    print(f"demo: {len(wrong)} things wrong with the extension" if wrong else "demo: nothing lost")
    return 1 if wrong else 0


def prepare(lab: Lab, chosen: list[Pair]) -> None:
    """
    Build everything that the experiments of these pairs need.

    Downloads leave the processor idle, so three things are built at a time.
    """
    cache = lab.cache.cache
    versions = sorted({version for pair in chosen for version in pair})
    salts = {salt_of(version) for version in versions} - {venvs.NEWEST}
    with ThreadPoolExecutor(max_workers=3) as pool:
        # This takes longest, and everything inside the machines needs it.
        first = [pool.submit(lab.cache.rootfs)]
        host.ensure_venv_module()
        first += [pool.submit(venvs.wheels, cache, version) for version in (venvs.NEWEST, *salts)]
        for job in first[1:]:
            job.result()
        master = pool.submit(venvs.series, cache, venvs.NEWEST)
        first[0].result()
        layers = sorted({old for old, _ in chosen})
        jobs = [pool.submit(lab.cache.layer, old) for old in layers]
        rest = [version for version in versions if version not in layers]
        jobs += [pool.submit(lab.cache.debs, version) for version in rest]
        for done in (master, *jobs):
            done.result()


def _run_pair(lab: Lab, old: str, new: str, site: Path, only: str | None) -> list[Outcome]:
    """Run both at the same time: plain Salt mostly waits."""
    sites = [None] if only == "plain" else [site] if only == "extension" else [None, site]
    with ThreadPoolExecutor(max_workers=2) as pool:
        made = [Experiment(lab, old, new, site=s, stop_timeout=STOP_TIMEOUT) for s in sites]
        runs = [pool.submit(each.run) for each in made]
        return [run.result() for run in runs]


def _save(logs: Path | None, outcomes: list[Outcome]) -> None:
    for out in outcomes if logs else ():
        assert logs is not None
        logs.mkdir(parents=True, exist_ok=True)
        mode = "extension" if out.extension else "plain"
        path = logs / f"{out.old}-{out.new}-{mode}.log"
        path.write_text(out.logs)
        progress.say(f"logs of the {mode} run: {path}")


__all__ = ["SUPPORTED_PAIRS", "demo", "parse_pair"]
