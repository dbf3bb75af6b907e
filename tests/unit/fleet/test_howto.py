"""What the how-to of a fleet shows is what the real functions print, of a simulated fleet."""

import pathlib
import random
import re

import pytest
import salt.utils.yaml

from saltext_safeupdate.fleet import inventory, plan, policy, request, rollout, summary, text
from saltext_safeupdate.fleet.policy_text import policy_lines
from saltext_safeupdate.fleet.rollout import Step
from saltext_safeupdate.master import progress
from tests.unit.fleet.world import NEW, NUMBER, OLD, Host, World

DOCS = pathlib.Path(__file__).parents[3] / "docs"
HOWTO = (DOCS / "topics" / "howto" / "fleet.md").read_text(encoding="utf-8")
RUNNER = (DOCS.parent / "src/saltext_safeupdate/runners/safeupdate.py").read_text(encoding="utf-8")
STATUS = (DOCS / "ref" / "rollout-status.md").read_text(encoding="utf-8")
# 2026-11-22 20:00 UTC.
BEGIN = 1795377600.0
WEB = [f"web{number:03}" for number in range(1, 251)]
DB = [f"db{number:02}" for number in range(1, 51)]


class Fleet(World):
    """300 minions: one is away for a while, one is rolled back, one is slow."""

    def __init__(self) -> None:
        names = [*WEB, *DB]
        self.hosts = {
            name: Host(name, takes=70 + (number * 37) % 60) for number, name in enumerate(names)
        }
        self.random, self.gates, self.asked, self._verdicts = random.Random(1), {}, [], []
        self.now = BEGIN
        wanted = request.from_mapping(
            {
                "groups": [{"name": "web", "target": "web*"}, {"name": "db", "target": "db*"}],
                "version": NEW,
                "windows": ["20:00-06:00 UTC"],
            }
        )
        facts = {name: plan.Facts(version=OLD) for name in names if name != "web042"}
        facts["web007"] = plan.Facts(version=NEW, installed=NEW)
        facts["db03"] = plan.Facts(
            version=OLD, problem="[space] /boot has 12 MB free, and 60 MB are needed. Free some."
        )
        made = plan.make(
            wanted,
            {"web": WEB, "db": DB},
            facts,
            plan_id="20261122-200000-9f3a",
            number=NUMBER,
            now=BEGIN,
            seconds=95.0,
        )
        self.rollout = rollout.begin(made, BEGIN)
        self._due, self.told = [], []
        self.lost = self.sent = 0
        self.hosts["web042"].away = ((0, BEGIN + 3000),)
        self.hosts["web100"].ends = "rolled_back"
        self.hosts["web180"].takes = 1500

    def shown(self) -> str:
        for minion in self.rollout.minions.values():
            if minion.step is Step.ROLLED_BACK:
                minion.reason = "the new minion did not answer its probe"
        return text.text(summary.summary(self.rollout, self.now))


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """What a plan, a rollout on its way, its end, and the list of all look like."""
    fleet = Fleet()
    found = [text.plan_text(fleet.rollout.plan)]
    while fleet.rollout.count(Step.DONE) < 90:
        fleet.tick()
    found.append(fleet.shown())
    while not fleet.rollout.mode.final:
        fleet.tick()
    found.append(fleet.shown())
    told = summary.summary(fleet.rollout, fleet.now)
    return [*found, progress.listed_text({told["rollout"]: told})]


def test_every_output_is_a_real_one(printed: list[str]) -> None:
    shown = re.findall(r"```text\n(.*?)\n```", HOWTO, re.S)
    assert shown == printed, "\n\n".join(printed)


def test_every_key_of_a_status_is_explained_and_no_other() -> None:
    world = World([Host("m1")])
    rows = re.findall(r"^\| ((?:`[a-z_]+` ?)+) \| ", STATUS.partition("## Exit")[0], re.M)
    told = {key for row in rows for key in re.findall(r"[a-z_]+", row)}
    # What the runner adds to the summary.
    added = {"owner", "looked_after", "stood_down", "history"}
    assert told == set(summary.summary(world.rollout, world.now)) | added
    (line,) = re.findall(r"one for each minion: (.*?)\. `asked`", STATUS, re.S)
    assert set(re.findall(r"`([a-z_]+)`", line)) == set(summary.rows(world.rollout)[0])
    assert all(f"`{step.value}`" in STATUS for step in Step)
    assert all(f"`{mode.value}`" in STATUS for mode in rollout.Mode)


POLICY = (DOCS / "topics" / "howto" / "policy.md").read_text(encoding="utf-8")


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", POLICY, re.DOTALL)


def _record(name: str, running: str = OLD, **more: object) -> inventory.Record:
    answer = {"running": running, "installed": running, "extension": "1.0", "phase": "idle"}
    return inventory.from_answer(name, answer | more, BEGIN)


def test_the_page_of_policies_shows_one_and_what_is_printed_of_it() -> None:
    found = policy.parse(salt.utils.yaml.safe_load(_blocks("yaml")[0]))
    databases = [f"db{number}" for number in range(1, 4)]
    rest = [f"web{number}" for number in range(1, 42)] + ["build1"]
    records = {name: _record(name) for name in rest}
    records |= {name: _record(name, NEW) for name in ("test1", "test2")}
    records |= {"db1": _record("db1", "3007.16"), "db2": _record("db2")}
    records["db3"] = _record("db3", held="ask Jo")
    records |= {name: _record(name, "3006.28") for name in ("web7", "web9")}
    looked = policy.look(
        found,
        policy.Known(
            members={
                "test": ["test1", "test2"],
                "databases": databases,
                "rest": rest,
            },
            records=records,
            heard=frozenset(records),
            # Monday, 2026-11-30, 22:30 UTC.
            now=1796077800.0,
            master=NEW,
            newest={"3007": "3007.16"},
        ),
    )
    told = {"policy": "/etc/salt/safeupdate/policy.yml", "enabled": True, "begun": ""}
    told |= {"groups": [vars(each) for each in looked]}
    told["next"] = policy.following(looked)[0].group
    assert policy_lines(told) == _blocks("text")[0].rstrip("\n")


def test_each_function_of_the_runner_is_in_the_table_of_permissions_once():
    section = HOWTO.split("## Who may do what")[1].split("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")][2:]
    named = [word for row in rows for word in re.findall(r"`([a-z_]+)`", row)]
    assert sorted(named) == sorted(re.findall(r"^def ([a-z]\w*)\(", RUNNER, re.MULTILINE))
