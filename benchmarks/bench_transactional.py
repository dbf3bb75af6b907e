"""
The costs of a call in a transaction, compared to the tool's own run of the same salt-call.

As root it boots a transactional system in a loop image
(``tests/functional/transactional/rig``) and prints ratios:

- wall and processor time of ``transactional_update.call test.ping`` from a process that has
  Salt loaded, against ``transactional-update ... run salt-call test.ping`` with the same
  options: the median of alternating runs, so that other load on the machine affects both
  alike. The stand-in for the tool is quicker than the tool, which needs 0.8 s more for
  ``--drop-if-no-change``: the real ratio is smaller;
- memory that a result of 10 MB costs at its peak, in the caller and in the function's own
  process, in multiples of its size.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from table import row

from tests.functional.transactional.conftest import Rig
from tests.functional.transactional.rig.system import System

ROUNDS = 9
SIZE = 10 * 1024 * 1024

# The caller is a process that has Salt loaded already, as a minion has.
CALLER = """
import json, os, subprocess, sys, time
import salt.client
caller = salt.client.Caller('/etc/salt/minion')
caller.cmd('test.ping')
call = caller.sminion.functions['transactional_update.call']
argv = ['transactional-update', '--non-interactive', '--drop-if-no-change', '--no-selfupdate',
        '--continue', '--quiet', 'run', *json.loads(sys.argv[1]), 'test.ping']
def plain():
    subprocess.run(argv, check=True, stdout=subprocess.PIPE)
def ours():
    assert call('test.ping') is True
def cpu():
    return sum(os.times()[:4])
times = {'plain': [], 'ours': [], 'plain cpu': [], 'ours cpu': []}
for _ in range(int(sys.argv[2])):
    for name, function in (('plain', plain), ('ours', ours)):
        start, used = time.monotonic(), cpu()
        function()
        times[name].append(time.monotonic() - start)
        times[name + ' cpu'].append(cpu() - used)
print(json.dumps(times))
"""

# Peak memory of the caller, with and without the result; the text itself is not ASCII.
MEMORY = """
import json, sys
import salt.client
caller = salt.client.Caller('/etc/salt/minion')
call = caller.sminion.functions['transactional_update.call']
def peak():
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith('VmHWM'))
def reset():
    with open('/proc/self/clear_refs', 'w') as refs:
        refs.write('5')
call('test.ping')
inner_before = call('benchmark_text.peak', 0)['peak']
reset()
before = peak()
got = call('benchmark_text.peak', int(sys.argv[1]))
after = peak()
assert len(got['text']) == int(sys.argv[1])
inner_after = int(open('/var/cache/benchmark-peak').read())
print(json.dumps({'outer': after - before, 'inner': inner_after - inner_before}))
"""

# Executed inside: returns a text, and writes the peak of its process when it ends.
TEXT = """
import atexit
def _peak():
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith('VmHWM'))
def _note():
    with open('/var/cache/benchmark-peak', 'w') as note:
        note.write(str(_peak()))
def peak(size):
    atexit.register(_note)
    return {'text': 'x' * size, 'peak': _peak()}
"""


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="benchmark-"))
    system = System(home)
    try:
        system.reset()
        rig = Rig(system)
        modules = rig.path("/var/cache/modules")
        modules.mkdir(exist_ok=True)
        (modules / "benchmark_text.py").write_text(TEXT)
        rig.configure(module_dirs=["/var/cache/modules-parent"])
        parent = rig.path("/var/cache/modules-parent")
        parent.mkdir()
        modules.rename(parent / "modules")
        inner = [
            str(Path(sys.executable).parent / "salt-call"),
            "--config-dir",
            "/etc/salt",
            "--local",
        ]
        inner += ["--out", "json", "--log-level", "quiet", "--no-return-event", "--"]
        done = rig.ok(sys.executable, "-c", CALLER, json.dumps(inner), str(ROUNDS))
        times = {name: statistics.median(found) for name, found in json.loads(done).items()}
        for kind, suffix in (("wall time", ""), ("processor time", " cpu")):
            ratio = times["ours" + suffix] / times["plain" + suffix]
            row(
                f"`transactional_update.call` and the tool's own run of `salt-call`, {kind}",
                ratio=f"{ratio:.3f}",
            )
        found = json.loads(rig.ok(sys.executable, "-c", MEMORY, str(SIZE)))
        for where, size in found.items():
            what = f"peak memory of a 10 MB result, in multiples of its size, {where}"
            row(what, ratio=f"{size / SIZE:.2f}")
    finally:
        system.close()


if __name__ == "__main__":
    main()
