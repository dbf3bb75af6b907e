"""After the old tree is gone, a process reads the copy of it."""

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
import json, shutil, sys
root, answer = sys.argv[1:]
sys.path.insert(0, root)
import salt.config, salt.loader
assert salt.__file__.startswith(root), salt.__file__
opts = salt.config.minion_config(None)
opts.update(root_dir=root, cachedir=root + "-cache", file_client="local", color=False,
            extension_modules=root + "-ext")
opts["grains"] = {"os": "x", "os_family": "x", "kernel": "Linux"}
before = salt.loader.minion_mods(opts)
before["test.ping"]()

from saltext_safeupdate.core.host import linked_copy
from saltext_safeupdate.ordering import old_tree
old_tree.redirect(linked_copy.make([root], "it"))
shutil.rmtree(root)

import salt.output
state = {"minion": {"pkg_|-own_|-salt-minion_|-latest": {
    "name": "salt-minion", "result": True, "changes": {"salt-minion": {"old": "1", "new": "2"}},
    "comment": "deferred", "duration": 1.0, "start_time": "12:00:00", "__run_num__": 0,
    "__id__": "own", "__sls__": "it"}}}
shown = {name: salt.output.out_format(state, name, opts)
         for name in ("highstate", "nested", "json", "yaml")}
after = salt.loader.minion_mods(opts)
found = {
    "shown": shown,
    # Not loaded before: by the old loader and by a new one.
    "old loader": before["hashutil.sha256_digest"]("x")[:8],
    "new loader": after["test.echo"]("hello"),
    "returners": "local_cache.returner" in salt.loader.returners(opts, after) or
                 len(list(salt.loader.returners(opts, after))) > 0,
    "serializers": "json.serialize" in salt.loader.serializers(opts),
    "elsewhere": sorted({
        path for path in (str(getattr(module, "__file__", "") or "")
                          for name, module in list(sys.modules.items())
                          if name.startswith("salt.loaded"))
        if path and ".salt-safeupdate-it-" not in path and not path.startswith(root)
        and "/salt/" in path and "saltext" not in path
    }),
}
import salt.utils.smb
found["import"] = ".salt-safeupdate-it-" in salt.utils.smb.__file__
with open(answer, "w") as file:
    json.dump(found, file)
"""


@pytest.fixture
def tree(tmp_path):
    """A tree of its own with Salt in it, and our package beside it."""
    root = tmp_path / "site"
    root.mkdir()
    # With its byte code, as packages bring it.
    shutil.copytree(Path(salt.__file__).parent, root / "salt")
    return root


def test_outputters_and_loaders_read_the_copy(tree, tmp_path):
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
    assert not tree.exists()
    assert "Succeeded: 1" in found["shown"]["highstate"]
    assert all("salt-minion" in text for text in found["shown"].values())
    assert json.loads(found["shown"]["json"])
    assert found["old loader"] == "2d711642"
    assert found["new loader"] == "hello"
    assert found["returners"] is True
    assert found["serializers"] is True
    assert found["import"] is True
    assert found["elsewhere"] == []
