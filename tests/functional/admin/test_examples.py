"""The examples of the page, read, rendered and judged by Salt itself."""

import datetime
import fnmatch
import inspect

import pytest
import salt.config
import salt.loader
import salt.runners.http
import salt.template
import salt.utils.json
import salt.utils.minions
import salt.utils.schedule
import salt.utils.yaml

from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.modules import safeupdate as module
from saltext_safeupdate.states import safeupdate as states
from tests.support import documents

PAGE = documents.REPO / "docs" / "topics" / "howto" / "examples.md"
BLOCKS = {block.text.partition("\n")[0].strip(): block.text for block in documents.blocks(PAGE)}


def _read(first):
    return salt.utils.yaml.safe_load(BLOCKS[first])


@pytest.fixture
def opts(tmp_path):
    found = salt.config.DEFAULT_MINION_OPTS.copy()
    found |= {"cachedir": str(tmp_path), "id": "web1", "file_client": "local", "grains": {}}
    return found


def _rendered(opts, first, tmp_path, **given):
    path = tmp_path / "it.sls"
    path.write_text(BLOCKS[first])
    renderers = salt.loader.render(opts, {})
    return salt.template.compile_template(
        str(path), renderers, "jinja|yaml", [], [], saltenv="base", sls="it", **given
    )


def test_the_schedule_calls_what_there_is_at_the_time_that_it_says(opts, tmp_path):
    jobs = _read("schedule:")["schedule"]
    for job in jobs.values():
        called = getattr(module, job["function"].partition(".")[2])
        inspect.signature(called).bind(*job["args"])
        assert job["args"] == ["3008.3"]
    begins = {
        name: job["when"] if isinstance(job["when"], str) else "not a text"
        for name, job in jobs.items()
    }
    assert begins == {"safeupdate-stage": "22:00", "safeupdate-update": "02:00"}
    for job in jobs.values():
        # It is random.
        assert job.pop("splay") == 3600
    opts |= {"schedule": jobs, "pillar": {}, "conf_file": str(tmp_path / "minion")}
    schedule = salt.utils.schedule.Schedule(
        opts, {job["function"]: None for job in jobs.values()}, {}, new_instance=True
    )
    # Neither is due now.
    noon = datetime.datetime.now().replace(hour=1, minute=0, second=0, microsecond=0)
    schedule.eval(now=noon)
    for name, when in begins.items():
        found = opts["schedule"][name]
        assert "_error" not in found, found
        due = found.get("_next_scheduled_fire_time") or found["_next_fire_time"]
        assert due.strftime("%H:%M") == when


def test_the_version_comes_from_the_pillar(opts, tmp_path):
    opts["pillar"] = _read("# pillar: minion.sls")
    made = _rendered(opts, "# states: minion.sls", tmp_path)
    assert made == {"minion-update": {"safeupdate.updated": [{"version": "3008.3"}]}}
    inspect.signature(states.updated).bind("minion-update", version="3008.3")


def test_somebody_is_told_when_a_minion_went_back(opts, tmp_path):
    ((pattern, files),) = _read("# /etc/salt/master.d/reactor.conf")["reactor"][0].items()
    assert fnmatch.fnmatch(f"salt/minion/web1/safeupdate/{Phase.ROLLED_BACK.value}", pattern)
    (path,) = files
    first = f"# /srv/salt/{path.removeprefix('salt://')}"
    data = {"id": 'w"eb1', "_stamp": ""}
    made = _rendered(opts, first, tmp_path, data=data, tag="x")
    ((function, (said,)),) = made["tell"].items()
    assert function == "runner.http.query"
    given = {key: value for each in said["args"] for key, value in each.items()}
    inspect.signature(salt.runners.http.query).bind(**given)
    assert salt.utils.json.loads(given["data"]) == {"text": 'The update of w"eb1 was rolled back.'}


@pytest.mark.parametrize(
    ("who", "may", "may_not"),
    [
        ("operators", ["safeupdate.status", "safeupdate.plan"], ["safeupdate.update", "cmd.run"]),
        ("deployers", ["safeupdate.update", "safeupdate.status", "state.apply"], ["cmd.run"]),
    ],
)
def test_who_may_do_what(opts, who, may, may_not):
    allowed = _read("publisher_acl:")["publisher_acl"][who]
    for each in (each for each in allowed if each.startswith("safeupdate.")):
        assert each == "safeupdate.*" or hasattr(module, each.partition(".")[2])
    master = {**salt.config.DEFAULT_MASTER_OPTS, "__role": "master"}
    master |= dict.fromkeys(("cachedir", "pki_dir"), opts["cachedir"])
    minions = salt.utils.minions.CkMinions(master)
    judged = {
        function: bool(minions.auth_check(allowed, [function], [[]], "*", "glob"))
        for function in (*may, *may_not)
    }
    assert judged == {**dict.fromkeys(may, True), **dict.fromkeys(may_not, False)}
