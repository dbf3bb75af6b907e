"""A generation reads its own copy of its code, whatever becomes of the files that it came from."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import salt

import saltext_safeupdate

PROGRAM = """
import importlib, importlib.metadata, json, os, site, sys
root, answer = sys.argv[1:]
sys.path.insert(0, root)
import salt.config, salt.loader, salt.loader.lazy, salt.output, spaces.early
from salt.utils.entrypoints import iter_entry_points
assert salt.__file__.startswith(root), salt.__file__
opts = salt.config.minion_config(None)
opts.update(root_dir=root, cachedir=root + "-cache", file_client="local", color=False,
            extension_modules=root + "-ext")
opts["grains"] = {"os": "x", "os_family": "x", "kernel": "Linux"}
before = salt.loader.minion_mods(opts, utils=salt.loader.utils(opts))
before["test.ping"]()

from saltext_safeupdate.core.generations import own_tree
from saltext_safeupdate.core.host import linked_copy, processes
from saltext_safeupdate.ordering import old_tree
copies = own_tree.make([root], processes.me())
old_tree.redirect(copies, beside=True)

# Another version is installed, and other packages.
for folder, below, names in os.walk(root):
    for name in names:
        if name.endswith(".py"):
            path = os.path.join(folder, name)
            with open(path + ".new", "w") as file:
                file.write("raise RuntimeError('the code of another version')")
            os.rename(path + ".new", path)
later = {"later.py": "", "spaces/late.py": "", "salt/modules/brandnew.py": "def f(): pass"}
for name, text in later.items():
    with open(os.path.join(root, name), "w") as file:
        file.write(text)
os.makedirs(root + "-ext/modules")
with open(root + "-ext/modules/synced.py", "w") as file:
    file.write("def it(): return 'synced'")

OUTPUTTERS = ("nested", "json", "yaml")

def where(loader):
    modules = [name for name in sys.modules if name.startswith("salt.loaded.")]
    return sorted({name.split(".")[2] for name in modules
                   if hasattr(sys.modules[name], "__file__")
                   and "/salt/" in sys.modules[name].__file__})

def job():
    importlib.reload(site)
    functions = salt.loader.minion_mods(opts, utils=salt.loader.utils(opts))
    states = salt.loader.states(opts, functions, {}, {})
    render = salt.loader.render(opts, functions)
    returners = salt.loader.returners(opts, functions)
    smb, later, late, part = map(importlib.import_module, (
        "salt.utils.smb", "later", "spaces.late", "thing.part"))
    data = {"minion": {"a": 1}}
    return {
        "functions": [functions["hashutil.sha256_digest"]("x")[:8], functions["test.echo"]("it"),
                      functions["synced.it"](), functions["thing.here"]()],
        "states": states["test.nop"]("x")["result"],
        "rendered": render["yaml"](render["jinja"]("a: {{ 1 + 1 }}", argline="-s")),
        "returners": "local_cache.returner" in returners or len(list(returners)) > 0,
        "shown": [bool(salt.output.out_format(data, name, opts)) for name in OUTPUTTERS],
        "copy": [".salt-safeupdate-g" in module.__file__ for module in (smb, part)],
        "root": [module.__file__.startswith(root) for module in (later, late)],
        "new": "brandnew.f" in functions,
        "names": where(functions),
        "path": [each for each in sys.path if each.endswith("/salt/utils")],
        "entry points": [each.name for each in iter_entry_points("salt.loader")
                         if each.name == "thing"],
        "version": importlib.metadata.version("thing"),
        "made": sum(1 for each in functions.module_dirs if "thing" in each),
    }

with open(os.path.join(root, "thing-1.dist-info", "METADATA.new"), "w") as file:
    file.write("Metadata-Version: 2.1\\nName: thing\\nVersion: 2\\n")
os.rename(file.name, file.name[:-4])

found = {"before": before["hashutil.md5_digest"]("x")[:8], "job": job()}
# A job is a child of it, and goes on if it dies.
out, into = os.pipe()
stop, go = os.pipe()
child = os.fork()
if not child:
    os.close(go)
    os.write(into, json.dumps(job()).encode())
    os.close(into)
    os.read(stop, 1)
    os._exit(0)
os.close(into)
with open(out) as file:
    found["child"] = json.load(file)
for fd in own_tree._held:
    os.close(fd)
own_tree.sweep([root])
found["held by the child"] = os.path.isdir(copies[root])
os.close(go)
os.waitpid(child, 0)
own_tree.sweep([root])
found["then"] = os.path.isdir(copies[root])
with open(answer, "w") as file:
    json.dump(found, file)
"""


@pytest.fixture
def tree(tmp_path):
    """A tree of its own with Salt in it, an extension, and a part of a namespace."""
    root = tmp_path / "site"
    root.mkdir()
    # With its byte code, as packages bring it: to compile all of it takes ten seconds.
    shutil.copytree(Path(salt.__file__).parent, root / "salt")
    files = {
        "thing/__init__.py": "",
        "thing/part.py": "",
        "thing/modules/thing.py": "def here():\n    return 'old thing'",
        "thing-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: thing\nVersion: 1\n",
        "thing-1.dist-info/entry_points.txt": "[salt.loader]\nthing = thing\n",
        "spaces/early.py": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_what_was_not_loaded_before_comes_from_the_copy(tree, tmp_path):
    answer = tmp_path / "answer.json"
    ours = Path(saltext_safeupdate.__file__).parents[1]
    done = subprocess.run(
        (sys.executable, "-W", "ignore", "-c", PROGRAM, str(tree), str(answer)),
        env={**os.environ, "PYTHONPATH": str(ours), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(answer.read_text())
    assert found["before"] == "9dd4e461"
    assert found["job"] == found["child"]
    assert found["job"] == {
        "functions": ["2d711642", "it", "synced", "old thing"],
        "states": True,
        "rendered": {"a": 2},
        "returners": True,
        "shown": [True, True, True],
        "copy": [True, True],
        # Packages that were installed later are there.
        "root": [True, True],
        "new": False,
        # Salt's own modules are known as such, and not found as top-level modules.
        "names": ["int"],
        "path": [],
        "entry points": ["thing"],
        "version": "1",
        "made": 1,
    }
    assert found["held by the child"] is True
    assert found["then"] is False
