"""Through Salt's own loaders and salt-call, on a real btrfs root."""

import json
import os
import sys

import pytest
import salt.version

from tests.support.waiting import LONGEST, wait_for

from .conftest import WAITER
from .host import NEW, OLD

FILE = """
change:
  file.managed:
    - name: {name}
    - contents: {text}
    - makedirs: true
"""


# Both ways in which the tool behaves. In a test run each older Salt meets the tool of its time:
# what the tool does has nothing to do with the Salt that calls it.
OTHER = {3006: "6.1.1", 3007: "5.1.0"}.get(salt.version.__saltstack_version__.major)
TOOLS = [
    pytest.param(version, marks=[pytest.mark.soak] if version == OTHER else [])
    for version in ("6.1.1", "5.1.0")
]


@pytest.fixture(params=TOOLS)
def both(rig, request):
    rig.version(request.param)
    return rig


def chunk(found, fragment):
    (tag,) = [tag for tag in found if fragment in tag]
    return found[tag]


def test_what_the_system_is(rig):
    assert rig.salt("transactional_update.transactional") is True
    assert rig.salt("transactional_update.in_transaction") is False
    assert rig.salt("transactional_update.pending_transaction") is False
    assert rig.salt("transactional_update.call", "transactional_update.in_transaction") is True
    rig.drive("run", command=["touch", "/data/x"])
    assert rig.salt("transactional_update.pending_transaction") is True
    listed = rig.salt("transactional_update.snapshots")
    assert [(snap["number"], snap["default"], snap["active"]) for snap in listed] == [
        (1, False, True),
        (2, True, False),
    ]


def test_a_private_mount_namespace_is_no_transaction(rig):
    argv = rig.salt_argv("transactional_update.in_transaction")
    assert json.loads(rig.ok("unshare", "--mount", *argv))["local"] is False


VALUES = {
    "none": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "int": -(2**53),
    "float": 1.5,
    "empty": "",
    "digits": "0123",
    "word": "true",
    "null": "null",
    "quotes": "'\"`$(x)",
    "lines": "a\nb\r\n\tc",
    "unicode": "ü✓🦎\u2028",
    "backslash": "\\n \\",
    "list": [1, "1", [2.0, None], {"a": []}],
    "map": {"a b": {"": [True]}, "=": "x=y"},
    "keys": [[1, "one"], [None, "none"]],
}


def test_arguments_and_results_keep_their_types(rig):
    """From Python through Salt's caller, the tool, salt-call, and back."""
    found = rig.python(
        "import json, salt.client\n"
        f"values = json.loads({json.dumps(json.dumps(VALUES))})\n"
        "values['int keys'] = {1: 'one', 2: {3: None}}\n"
        "values['bytes'] = b'\\x00\\xff'\n"
        "caller = salt.client.Caller('/etc/salt/minion')\n"
        "got = caller.cmd('transactional_update.call', 'test.arg', *values.values(), **{\n"
        "    'kw ' + key: value for key, value in values.items()})\n"
        "print(json.dumps([got['args'] == list(values.values()),\n"
        "    {key[3:]: value for key, value in got['kwargs'].items()"
        " if key[:3] == 'kw '} == values,\n"
        "    [repr(x) for x in got['args']] == [repr(x) for x in values.values()]]))"
    )
    assert found == [True, True, True]


def test_a_10_mb_result_comes_back_whole(rig):
    found = rig.python(
        "import json, salt.client\n"
        "text = '0123456789\\n\"ü' * 800_000\n"
        "caller = salt.client.Caller('/etc/salt/minion')\n"
        "got = caller.cmd('transactional_update.call', 'test.echo', text)\n"
        "print(json.dumps([len(text.encode()) > 10_000_000, got == text]))"
    )
    assert found == [True, True]


def test_10000_states_come_back_whole_and_in_order(rig):
    rig.sls(
        "many",
        "#!py\ndef run():\n"
        "    return {f'n{i:05}': {'test.nop': [{'order': i + 1}]} for i in range(10_000)}\n",
    )
    found = rig.salt("transactional_update.sls", "many")
    assert [(value["__id__"], value["result"]) for value in found.values()] == [
        (f"n{i:05}", True) for i in range(10_000)
    ]


def test_command_lines_are_those_of_salt_3006(rig):
    rig.salt("transactional_update.call", "test.ping")
    argv = rig.tool_argv()[-1]
    general = [
        "--non-interactive",
        "--drop-if-no-change",
        "--no-selfupdate",
        "--continue",
        "--quiet",
    ]
    assert argv[:6] == [*general, "run"]
    rig.salt("transactional_update.run", "touch '/data/a b'", "snapshot=continue")
    assert rig.tool_argv()[-1] == [*general, "run", "touch", "/data/a b"]
    rig.salt("transactional_update.pkg_install", "pkg=vim", "args=--no-recommends", "snapshot=2")
    assert rig.tool_argv()[-1] == [
        *("--non-interactive", "--drop-if-no-change", "--no-selfupdate", "--continue", "2"),
        *("pkg", "install", "--no-recommends", "vim"),
    ]


def test_nothing_secret_is_left_or_logged(rig):
    rig.sls("secret", FILE.format(name="/data/x", text="{{ pillar['password'] }}"))
    pillar = json.dumps({"password": "correct horse"})
    rig.salt("transactional_update.sls", "secret", f"pillar={pillar}")
    assert rig.in_snapshot(2, "/data/x").read_text() == "correct horse\n"
    rig.assert_clean(2, [1, 2])
    for place in ("/var/log", "/run", "/var/cache/salt-safeupdate"):
        for folder, _, files in os.walk(rig.path(place)):
            for name in files:
                if not os.path.isfile(f"{folder}/{name}"):
                    continue  # the socket of the message bus
                with open(f"{folder}/{name}", "rb") as file:
                    assert b"correct horse" not in file.read(), f"{folder}/{name}"


def test_the_hand_over_is_private_while_it_exists(rig):
    argv = rig.salt_argv("transactional_update.call", "cmd.run", WAITER)
    process = rig.start(*argv)
    wait_for(rig.path("/var/cache/started").exists, "the function runs")
    (directory,) = rig.path("/var/cache/salt-safeupdate").glob("?" * 32)
    modes = {path.name: path.stat().st_mode & 0o777 for path in [directory, *directory.iterdir()]}
    rig.go()
    process.communicate(timeout=LONGEST)
    assert modes.pop(directory.name) == modes.pop("bin") == 0o700
    assert set(modes) >= {"request", "begun", "stderr"}
    assert set(modes.values()) == {0o600}


def test_a_failing_state_returns_all_results_and_nothing_stays(both):
    both.sls("bad", FILE.format(name="/data/x", text="x") + "wrong:\n  test.fail_without_changes\n")
    found = both.salt("transactional_update.sls", "bad", retcode=2)
    assert chunk(found, "/data/x")["result"] is True
    assert chunk(found, "wrong")["result"] is False
    assert "The transaction was discarded" in chunk(found, "_|-report")["comment"]
    both.assert_clean(1, [1])


def test_a_failing_function_is_an_error(both):
    said = both.salt_error("transactional_update.call", "file.mkdir", "/proc/no")
    assert "file.mkdir in the transaction" in said
    assert "nothing of it is in effect" in said
    said = both.salt_error("transactional_update.call", "no.such")
    assert "'no.such' is not available in the snapshot" in said
    both.assert_clean(1, [1])


def test_a_command_that_fails_gives_its_output_and_its_status(rig):
    found = rig.salt("transactional_update.call", "cmd.run_all", "echo a; exit 3", retcode=3)
    assert (found["stdout"], found["retcode"]) == ("a", 3)
    assert "echo a; exit 3" not in rig.path("/var/log/rig-argv").read_text()
    rig.assert_clean(1, [1])


def test_a_terminated_function_is_an_error_and_never_boots(both):
    """salt-call returns 0 then, and the tool commits what returns 0."""
    script = "echo half > /data/x; kill -TERM $PPID; while :; do sleep 1; done"
    said = both.salt_error("transactional_update.call", "cmd.run", script)
    assert "ended without a result" in said
    # The tool has not committed it at all, from 5.5 on.
    undone = both.path("/run/rig/version").read_text() == "5.1.0"
    assert ("The default is 1 as before" in said) is undone
    both.assert_clean(1, [1])


# Time has run out as soon as the function runs, however long it took to get there.
HUNG = """
import json, os, time, salt.client
from salt.exceptions import CommandExecutionError
from saltext_safeupdate.core.transactional.tool import Tool

started = "/var/cache/started"
clock = lambda: time.monotonic() + 1000 * os.path.exists(started)
Tool.__init__.__kwdefaults__["clock"] = clock
caller = salt.client.Caller("/etc/salt/minion")
script = f"echo half > /data/x; touch {started}; while :; do sleep 1; done"
try:
    said = caller.cmd("transactional_update.call", "cmd.run", script, transaction_timeout=900)
except CommandExecutionError as err:
    said = {"error": str(err)}
print(json.dumps(said))
"""


def test_a_hung_function_ends_at_its_timeout(rig):
    assert "did not end within 900 s" in rig.python(HUNG)["error"]
    assert rig.path("/var/cache/started").exists()
    rig.assert_clean(1, [1])


SIGNAL = """
import json, sys, salt.client
caller = salt.client.Caller('/etc/salt/minion')
jobs = [job for job in caller.cmd('saltutil.running') if job['fun'] == 'transactional_update.call']
print(json.dumps([caller.cmd('saltutil.' + sys.argv[1], job['jid']) for job in jobs]))
"""


@pytest.mark.parametrize("function", ["term_job", "kill_job"])
def test_a_job_that_is_stopped_leaves_nothing_that_boots(rig, function):
    # Salt gives up if a process of the job ends while it signals them: so the shell starts none.
    rig.ok("mkfifo", "-m", "600", "/var/cache/never")
    script = "echo half > /data/x; touch /var/cache/started; read nothing < /var/cache/never"
    job = rig.start(*rig.salt_argv("transactional_update.call", "cmd.run", script))
    base = rig.path("/var/cache/salt-safeupdate")
    wait_for(lambda: list(base.glob("*/snapshot")), "the call has noted its snapshot")
    wait_for(rig.path("/var/cache/started").exists, "the function runs")
    (told,) = json.loads(rig.ok(sys.executable, "-c", SIGNAL, function))
    assert "sent to job" in told
    job.communicate(timeout=LONGEST)
    assert rig.default() == 1
    rig.path("/run/transactional-update.pid").unlink(missing_ok=True)
    assert rig.drive("run", command=["true"])["failure"] is None
    rig.assert_clean(1, [1])


def test_a_disk_that_gets_full_is_an_error_that_says_so(full):
    script = (
        "dd if=/dev/zero of=/data/fill bs=64k; i=0; while echo $i > /data/$i; do i=$((i+1)); done"
    )
    said = full.salt_error("transactional_update.call", "cmd.run", script)
    assert "No space left" in said or "cannot be written" in said
    full.assert_clean(1, [1])


def test_two_calls_at_once_are_both_right(rig):
    first = rig.start(
        *rig.salt_argv(
            "transactional_update.call", "cmd.run", WAITER + "echo one > /data/one; echo one"
        )
    )
    wait_for(rig.path("/var/cache/started").exists, "the first call runs")
    second = rig.start(
        *rig.salt_argv("transactional_update.call", "cmd.run", "cat /data/one; touch /data/two")
    )
    wait_for(
        lambda: "transactional_update.call" in rig.ok("cat", f"/proc/{second.pid}/cmdline"),
        "started",
    )
    rig.go()
    results = [
        json.loads(process.communicate(timeout=LONGEST)[0])["local"] for process in (first, second)
    ]
    assert results == ["one", "one"]
    rig.assert_clean(3, [1, 2, 3])


def test_a_state_run_in_the_way_is_a_conflict_or_waited_for(rig):
    rig.sls("wait", f"wait:\n  cmd.run:\n    - name: '{WAITER}'\n")
    rig.sls("quick", FILE.format(name="/data/x", text="x"))
    first = rig.start(*rig.salt_argv("state.sls", "wait"))
    wait_for(rig.path("/var/cache/started").exists, "the first run runs")
    found = rig.salt("transactional_update.sls", "quick", retcode=1)
    assert 'The function "state.sls" is running' in found[0]
    second = rig.start(*rig.salt_argv("transactional_update.sls", "quick", "queue=True"))
    rig.go()
    first.communicate(timeout=LONGEST)
    assert (
        chunk(json.loads(second.communicate(timeout=LONGEST)[0])["local"], "change")["result"]
        is True
    )
    rig.assert_clean(2, [1, 2])


WATCH = """
/etc/web.conf:
  file.managed:
    - contents: x
web:
  service.running:
    - watch:
      - file: /etc/web.conf
"""


def test_a_service_is_restarted_once_its_etc_change_is_live(rig):
    rig.sls("web", WATCH)
    found = rig.salt("transactional_update.sls", "web")
    assert rig.path("/etc/web.conf").read_text() == "x\n"
    assert "restart web" in rig.path("/run/rig/systemctl").read_text().splitlines()
    report = chunk(found, "_|-report")
    assert report["changes"] == {"restarted": ["restart web"]}
    rig.assert_clean(1, [1])


def test_a_service_that_does_not_restart_fails_the_run(rig):
    rig.sls("web", WATCH.replace("web:", "broken:"))
    found = rig.salt("transactional_update.sls", "web", retcode=1)
    assert "restart broken after the transaction failed" in chunk(found, "_|-report")["comment"]


UNIT = """
/etc/systemd/system/own.service:
  file.managed:
    - makedirs: true
    - contents: |
        [Service]
        ExecStart=/bin/true
        [Install]
        WantedBy=multi-user.target
own:
  service.{state}:
    - enable: {enable}
"""
LINK = "/etc/systemd/system/multi-user.target.wants/own.service"


def test_a_service_of_a_new_snapshot_is_left_to_the_reboot(rig):
    unit = UNIT.replace("service.{state}:", "service.enabled").partition("    - enable")[0]
    watch = WATCH.replace("web:", "watching:").replace(".running:", ".running:\n    - name: own")
    rig.sls("web", unit + watch + FILE.format(name="/data/program", text="x"))
    found = rig.salt("transactional_update.sls", "web")
    assert chunk(found, "own_|-own_|-enabled")["changes"] == {"own": True}
    assert "Happens with the reboot" in chunk(found, "_|-report")["comment"]
    assert "restart own" in chunk(found, "_|-report")["comment"]
    log = rig.path("/run/rig/systemctl")
    assert not log.exists() or "restart" not in log.read_text()


def test_what_the_boot_starts_is_enabled_in_the_snapshot(rig):
    """Salt says without systemd that there is nothing to do."""
    rig.sls("own", UNIT.format(state="running", enable="true"))
    found = chunk(rig.salt("transactional_update.sls", "own", "test=True"), "own_|-own_|-running")
    assert (found["result"], found["comment"]) == (
        None,
        "Running in OFFLINE mode. Service own not present; if created in this state run, "
        "it would have been enabled",
    )
    found = rig.salt("transactional_update.sls", "own")
    assert chunk(found, "own_|-own_|-running")["changes"] == {"own": True}
    assert chunk(found, "_|-report")["comment"] == "Done after the transaction: start own."
    assert os.path.lexists(rig.path(LINK))
    # Into a new snapshot, too; and the other way round.
    rig.sls("own", UNIT.format(state="dead", enable="false") + FILE.format(name="/data/x", text=1))
    found = rig.salt("transactional_update.sls", "own")
    assert chunk(found, "own_|-own_|-dead")["comment"] == (
        "Running in OFFLINE mode. Service own has been disabled"
    )
    assert (
        "Happens with the reboot that the new snapshot waits for: stop own."
        in (chunk(found, "_|-report")["comment"])
    )
    assert os.path.lexists(rig.path(LINK))
    assert not os.path.lexists(rig.in_snapshot(2, LINK))


@pytest.mark.parametrize(
    ("state", "enabled", "why"),
    [("running", "false", "does not start it, as it is not"), ("dead", "true", "starts it again")],
)
def test_a_boot_that_undoes_a_state_fails_it(rig, state, enabled, why):
    unit, _, _ = UNIT.format(state=state, enable="").partition("    - enable")
    way = "enabled" if enabled == "true" else "disabled"
    text = f"{unit}    - order: last\nbefore:\n  service.{way}:\n    - name: own\n"
    rig.sls("own", text + FILE.format(name="/data/x", text="x"))
    report = chunk(rig.salt("transactional_update.sls", "own", retcode=1), "_|-report")
    assert report["result"] is False
    assert why in report["comment"]


def test_files_that_vanish_are_named(rig):
    gone = "gone:\n  file.absent:\n    - name: /var/lib/gone\n"
    rig.sls("home", FILE.format(name="/home/user/file", text="x") + gone)
    found = rig.salt("transactional_update.sls", "home")
    said = chunk(found, "_|-report")["comment"]
    assert "nobody will see it: /home/user/file." in said
    assert "does not see what the live system has there: /var/lib/gone." in said
    script = "for place in home run var/lib etc; do echo x > /$place/y; done"
    report = rig.salt("transactional_update.call", "cmd.run", script, "transaction_report=True")[
        "transaction"
    ]
    # /etc is part of the snapshot, and no mount of its own in there.
    assert report["vanished_files"] == ["/home/y", "/var/lib/y", "/run/y"]
    assert not rig.path("/home/y").exists()
    assert rig.path("/etc/y").exists()


REBOOT = """
reboot:
  module.run:
    - system.reboot: []
"""


@pytest.mark.parametrize("state", [REBOOT, "x:\n  transactional_update.rebooted: []\n"])
def test_a_reboot_asked_for_inside_comes_afterwards(rig, state):
    rig.sls("reboot", FILE.format(name="/data/x", text="x") + state)
    found = rig.salt("transactional_update.sls", "reboot")
    assert "comes after the transaction" in chunk(found, "_|-report")["comment"]
    assert rig.path("/run/rig/rebooted").read_text() == "reboot\n"
    assert rig.tool_argv()[-1][-1] == "reboot"
    assert rig.default() == 2


def test_activate_transaction_reboots_only_with_something_pending(rig):
    """A reboot that did nothing without a new snapshot: uyuni #5772."""
    rig.salt("transactional_update.call", "test.ping", "activate_transaction=True")
    assert not rig.path("/run/rig/rebooted").exists()
    rig.salt("transactional_update.call", "file.touch", "/data/x", "activate_transaction=True")
    assert rig.path("/run/rig/rebooted").exists()


@pytest.mark.parametrize(
    ("words", "reboots"),
    [
        (("single", "test.nop", "x", "test=True"), False),
        (("call", "test.arg", "test=True"), False),
        (("single", "test.fail_without_changes", "x"), False),
        (("single", "test.nop", "x", "test=False"), True),
    ],
)
def test_what_activates_a_snapshot_that_was_pending_before(rig, words, reboots):
    """Never a call in test mode, and never one that has failed."""
    rig.salt("transactional_update.call", "file.touch", "/data/x")
    function, *args = words
    rig.salt_call(f"transactional_update.{function}", *args, "activate_transaction=True")
    assert rig.path("/run/rig/rebooted").exists() is reboots


def test_a_reboot_that_does_not_happen_is_an_error(rig):
    """transactional-update #92."""
    rig.fault("reboot-fails")
    said = rig.salt_error("transactional_update.reboot")
    assert "returned 0, but no reboot is under way" in said
    assert "command not found" in said


REBOOTMGRCTL = """\
#!/bin/sh
# As rebootmgr 3.3 does it.
case $1 in
--version) echo "rebootmgrctl (rebootmgr) 3.3" ;;
get-strategy) echo "Reboot strategy: best-effort" ;;
set-strategy) echo "$2" > /run/rig/strategy ;;
status)
    [ "$(cat /run/rig/strategy)" != off ] || off=" (reboots temporarily disabled)"
    printf 'Status: Reboot not requested%s\nStrategy: best-effort\n' "$off"
    ;;
esac
"""


def test_yaml_makes_booleans_of_strategies(rig):
    """A strategy of off asked for best-effort."""
    program = rig.path("/usr/local/sbin/rebootmgrctl")
    program.write_text(REBOOTMGRCTL)
    program.chmod(0o755)
    try:
        rig.path("/run/rig/strategy").write_text("best-effort")
        assert rig.salt("rebootmgr.set_strategy", "off") == "The strategy is off now."
        rig.configure(use_superseded=["module.run"])
        rig.sls(
            "back", "back:\n  module.run:\n    - rebootmgr.set_strategy:\n      - strategy: on\n"
        )
        said = chunk(rig.salt("state.sls", "back"), "back")["changes"]
        assert said == {"rebootmgr.set_strategy": "The strategy is on now."}
        assert rig.path("/run/rig/strategy").read_text() == "on\n"
    finally:
        program.unlink()


def test_the_states(rig):
    rig.sls("inner", FILE.format(name="/data/x", text="x"))
    rig.sls(
        "outer",
        "packages:\n  transactional_update.applied:\n    - mods: inner\n"
        "activate:\n  transactional_update.rebooted:\n    - require:\n"
        "      - transactional_update: packages\n",
    )
    found = rig.salt("state.sls", "outer", "test=True", retcode=0)
    assert chunk(found, "packages")["result"] is None
    assert rig.default() == 1
    found = rig.salt("state.sls", "outer")
    assert list(chunk(found, "packages")["changes"]) == ["file_|-change_|-/data/x_|-managed"]
    assert chunk(found, "activate")["changes"] == {"reboot": "requested"}
    rig.boot()
    found = rig.salt("state.sls", "outer")
    assert chunk(found, "packages")["changes"] == chunk(found, "activate")["changes"] == {}
    assert chunk(found, "activate")["comment"] == "No reboot is needed"


def test_the_executor(rig):
    chain = ["transactional_update", "direct_call"]
    rig.configure(
        module_executors=chain, add_delegated_functions=["transactional_update.in_transaction"]
    )
    assert rig.salt("transactional_update.in_transaction") is True
    assert rig.salt("test.ping") is True
    assert rig.salt("cmd.run", "echo x > /data/x; echo $TRANSACTIONAL_UPDATE") == "true"
    assert rig.default() == 2
    rig.sls("more", FILE.format(name="/data/y", text="y"))
    assert chunk(rig.salt("state.apply", "more"), "/data/y")["result"] is True
    assert sorted(path.name for path in rig.in_snapshot(3, "/data").iterdir()) == ["x", "y"]
    words = ("--module-executors=[transactional_update]", "state.single", "file.touch")
    assert chunk(rig.salt(*words, "name=/data/z"), "file_|-/data/z_|-/data/z_|-touch")["result"]
    # behind the executor that keeps the minion's own update safe
    rig.configure(module_executors=["safeupdate", *chain])
    assert rig.salt("cmd.run", "ls /data; echo $TRANSACTIONAL_UPDATE") == "x\ny\nz\ntrue"
    assert chunk(rig.salt("state.single", "test.nop", "name=x"), "nop")["result"] is True


def test_the_beacon(rig):
    code = (
        "import json, salt.config, salt.loader\n"
        "opts = salt.config.minion_config('/etc/salt/minion')\n"
        "opts['grains'] = {}\n"
        "beacons = salt.loader.beacons(opts, {}, context={})\n"
        "assert beacons['transactional_update.validate']([])[0]\n"
        "from saltext_safeupdate.core.host.command import run\n"
        "got = [beacons['transactional_update.beacon']([])]\n"
        "run(('transactional-update', 'run', 'touch', '/data/x'), timeout=60)\n"
        "got += [beacons['transactional_update.beacon']([]) for _ in range(2)]\n"
        "run(('transactional-update', 'rollback'), timeout=60)\n"
        "got += [beacons['transactional_update.beacon']([])]\n"
        "print(json.dumps(got))"
    )
    assert rig.python(code) == [
        [],
        [{"tag": "pending", "running": 1, "default": 2}],
        [],
        [{"tag": "activated", "running": 1, "default": 1}],
    ]


def test_every_function_is_there_with_its_documentation(rig):
    documented = rig.salt("sys.doc", "transactional_update")
    names = {name.partition(".")[2] for name in documented}
    assert names >= {
        *("transactional", "in_transaction", "cleanup", "cleanup_snapshots", "cleanup_overlays"),
        *("grub_cfg", "bootloader", "initrd", "kdump", "run", "reboot", "dup", "up", "patch"),
        *("migration", "pkg_install", "pkg_remove", "pkg_update", "rollback", "call", "apply"),
        *("pending_transaction", "sls", "highstate", "single", "snapshots", "status", "register"),
        *("setup_selinux", "setup_kdump", "setup_fips", "apply_snapshot", "soft_reboot"),
    }
    assert all("CLI Example:" in text for text in documented.values())


def test_a_transaction_that_changes_the_minion_is_looked_after(host):
    """Also where nobody has asked the extension for it."""
    rig = host.rig
    rig.configure(
        module_executors=["safeupdate", "direct_call"],
        safeupdate={"packages": list(OLD)},
    )
    # Where rpm is all that there is.
    place = "/var/cache/programs"
    rig.ok("sh", "-c", f"mkdir -p {place} && ln -sf /usr/bin/* /usr/sbin/* {place}")
    for name in ("apt-get", "dpkg-query"):
        rig.path(f"{place}/{name}").unlink(missing_ok=True)

    def salt_call(function, *words):
        return rig.run("env", f"PATH=/usr/local/sbin:{place}", *rig.salt_argv(function, *words))

    host("quarantine", version="3008.4-1")
    install = " ".join(("rpm", "--upgrade", *host.files("3008.4")))
    state = ("transactional_update.single", "cmd.run", install, "activate_transaction=True")
    done = salt_call(*state)
    report = chunk(json.loads(done.stdout)["local"], "_|-report")
    assert (done.returncode, report["result"]) == (1, False)
    assert "3008.4-1 was rolled back on this minion, and is" in report["comment"]
    assert "The cause, of update u0: " in report["comment"]
    assert (rig.default(), rig.numbers(), host.reboots()) == (2, [1, 2], [])
    assert host("status")["last"] is None

    files = host.files("3008.3")
    done = salt_call("transactional_update.run", json.dumps(["rpm", "--upgrade", *files]))
    assert done.returncode == 0, done.stderr
    done = salt_call("transactional_update.apply_snapshot")
    assert "reboot instead" in done.stderr

    def waits():
        found = host("status")
        return found["last"] and found["last"]["awaits"]

    wait_for(waits, "the supervisor has seen that it waits for a boot")
    found = host("status")
    assert found["last"]["reason"] == "transactional_update.run"
    assert (found["last"]["from"], found["last"]["to"]) == (OLD, NEW)
    host.boot()
    assert host("supervise")["last"]["phase"] == "committed"
