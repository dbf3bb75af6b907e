"""
The costs of the runner functions on a master with 10,000 minions: the inventory, and a rollout.

Each figure is measured in a process of its own, because a runner is one, with the cache of local
files. Times are processor times; the time that minions take to answer is not measured. Memory is
linear if ten times as many minions take at most ten times as much. The first rows compare how long
we and Salt take to find the minions that match a target; for grains, most of our time is Salt's.
Nothing is asserted.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench_ledger import scratch
from table import row

FEW, MANY = 1_000, 10_000
OVER = 20
# The number of looks at a rollout that are measured together.
LOOKS = 20
ASKED = "under 2 s, memory linear"
GRAINS = {"os": "Debian"}


def names_of(count: int) -> list[str]:
    return [f"minion-{number:05}.example.com" for number in range(count)]


# Targets that match all of them.
TARGETS: dict[str, tuple[Callable[[int], object], str]] = {
    "'*'": (lambda _: "*", "glob"),
    "a list": (names_of, "list"),
    "a grain": (lambda _: "os:Debian", "grain"),
    "a compound with a grain": (lambda _: "G@os:Debian and minion-*", "compound"),
}


def options(root: Path) -> dict[str, Any]:
    """Return the options of a master below *root*."""
    import salt.config

    places = dict.fromkeys(("cachedir", "root_dir", "extension_modules"), str(root))
    opts: dict[str, Any] = salt.config.apply_master_config(
        {**places, "pki_dir": str(root / "pki"), "__role": "master"}
    )
    return opts


def fill(opts: Mapping[str, Any], count: int) -> None:
    """Accept the keys of so many minions, store their answers, and begin a rollout on them."""
    import salt.cache

    from saltext_safeupdate.fleet import plan, request, rollout
    from saltext_safeupdate.master.store import Store

    names = names_of(count)
    accepted = Path(opts["pki_dir"]) / "minions"
    accepted.mkdir(parents=True)
    cache = salt.cache.factory(opts)
    for name in names:
        (accepted / name).write_text("key")
        # The bank in which each Salt keeps grains.
        cache.store("grains", name, GRAINS)
        cache.store(f"minions/{name}", "data", {"grains": GRAINS, "pillar": {}})
    inventory(opts).versions(names, 30.0)
    made = plan.make(
        request.from_mapping({"groups": ["*"], "version": "3008.3"}),
        {"group 1": names},
        {name: plan.Facts(version="3007.15") for name in names},
        plan_id="bench",
        number=1,
        now=time.time(),
    )
    store = Store(opts)
    store.save_rollout(rollout.begin(made, time.time()))
    for number in range(OVER):
        ended = rollout.begin(dataclasses.replace(made, id=f"over{number}"), time.time())
        ended.mode = rollout.Mode.FINISHED
        store.save_rollout(ended)


def answer(number: int) -> dict[str, Any]:
    """Return the answer of a minion; one in ten has drifted."""
    version = "3007.15" if number % 10 == 0 else "3008.3"
    found = {"running": version, "installed": version, "intended": "3008.3", "phase": "idle"}
    return {**found, "extension": "1.0", "extension_on_disk": "1.0", "way": "apt", "problems": []}


def inventory(opts: Mapping[str, Any]) -> Any:
    """Return the inventory of a master whose minions answer at once."""
    from saltext_safeupdate.master.stocktaking import Inventory
    from saltext_safeupdate.master.store import Store

    def ask(minions: list[str], *_: object) -> dict[str, object]:
        return {name: answer(number) for number, name in enumerate(minions)}

    return Inventory(Store(opts), ask, lambda: 1, master="3008.3")


def ours(opts: Mapping[str, Any], target: object, kind: str) -> int:
    """Find the minions that match a target; return their number."""
    from saltext_safeupdate.master.stocktaking import expected

    return len(expected(opts, target, kind))


def salts(opts: Mapping[str, Any], target: object, kind: str) -> int:
    """Find them as Salt does."""
    import salt.utils.minions

    checker = salt.utils.minions.CkMinions(dict(opts))
    return len(checker.check_minions(target, kind)["minions"])


def asked(opts: Mapping[str, Any], what: str, *, asks: bool) -> None:
    """Do the work of ``versions`` and ``check``, up to the text on the terminal."""
    from saltext_safeupdate.master import stocktaking

    minions = stocktaking.expected(opts, "*", "glob")
    stocktaking.shown(getattr(inventory(opts), what)(minions, 30.0, asks=asks))


def rollout_of(opts: Mapping[str, Any]) -> Any:
    from saltext_safeupdate.master.store import Store

    return Store(opts).rollout("bench")


def status(opts: Mapping[str, Any]) -> None:
    from saltext_safeupdate.fleet import summary

    found = rollout_of(opts)
    summary.summary(found, time.time())
    summary.rows(found)


def listed(opts: Mapping[str, Any]) -> None:
    from saltext_safeupdate.master import orders

    orders.listed(opts)


def report(opts: Mapping[str, Any]) -> None:
    from saltext_safeupdate.fleet import report as reports

    reports.page(rollout_of(opts), time.time())


def save(opts: Mapping[str, Any]) -> None:
    """Save a rollout twenty times, each time with news of one minion."""
    from saltext_safeupdate.master.store import Store

    store = Store(opts)
    found = store.rollout("bench")
    assert found is not None
    for number, minion in zip(range(20), found.minions.values(), strict=False):
        minion.number = number + 1
        store.save_rollout(found)


def look(opts: Mapping[str, Any], *, hears: bool) -> None:
    """Look at a rollout repeatedly, as the engine does; all minions answer if it *hears*."""
    from saltext_safeupdate.fleet import controller
    from saltext_safeupdate.fleet.judge import Report

    found = rollout_of(opts)
    for number in range(1, LOOKS + 1):
        names = found.minions if hears else ()
        said = [Report(minion=name, question=number, version="3007.15") for name in names]
        found.question = max(found.question, number)
        controller.advance(found, said, found.looked + 1)


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of processor and the megabytes that *work* takes in a new process."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        work()
        took = time.process_time() - began
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
        os.write(writes, pickle.dumps((took, grown)))
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    found: tuple[float, float] = pickle.loads(told)
    return found


def main() -> None:
    works: dict[str, Callable[[Mapping[str, Any]], object]] = {
        "`versions`": lambda opts: asked(opts, "versions", asks=True),
        "`versions ask=False`": lambda opts: asked(opts, "versions", asks=False),
        "`check`": lambda opts: asked(opts, "check", asks=True),
        "`status`": status,
        f"`status` without a name, with {OVER} rollouts that are over": listed,
        "`report`": report,
        "saving a rollout 20 times": save,
        f"{LOOKS} looks of the engine at a rollout": lambda opts: look(opts, hears=False),
        f"{LOOKS} looks, each with an answer of every minion": lambda opts: look(opts, hears=True),
    }
    with scratch() as few, scratch() as many:
        places = ((options(few / "few"), FEW), (options(many / "many"), MANY))
        # This process imports the programs, but does not use the memory of many minions.
        fill(options(few / "imports"), 2)
        for opts, count in places:
            measured(lambda opts=opts, count=count: fill(opts, count))
        opts = places[-1][0]
        for what, (target, kind) in TARGETS.items():
            named = target(MANY)
            plain, spent = (
                measured(lambda find=find, named=named, kind=kind: find(opts, named, kind))[0]
                for find in (salts, ours)
            )
            row(
                f"finding {MANY:,} minions by {what}, processor time; it is a part of the next",
                plain=f"{plain:.2f} s",
                ours=f"{spent:.2f} s",
                ratio=f"{spent / plain:.2f}",
            )
        for what, work in works.items():
            (little, small), (much, large) = (
                measured(lambda work=work, opts=opts: work(opts)) for opts, _ in places
            )
            row(
                f"{what} with {MANY:,} minions, processor time and memory",
                ours=f"{much:.2f} s, {large:.0f} MB ({FEW:,}: {little:.2f} s, {small:.0f} MB)",
                ratio=f"{large / max(small, 0.1):.1f} ×",
                asked=ASKED,
            )


if __name__ == "__main__":
    main()
