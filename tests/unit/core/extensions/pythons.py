"""Real interpreters with places of their own, and what is installed there."""

import sys
import sysconfig
import venv
import zipfile

from saltext_safeupdate.core.extensions import beside_salt, distributions
from saltext_safeupdate.core.host.command import run

MINOR = sys.version_info[1]
NEXT = MINOR + 1
ABI = sysconfig.get_config_var("EXT_SUFFIX")


class Python:
    """A real interpreter with a place of its own for packages."""

    def __init__(self, root):
        venv.create(root, symlinks=True, with_pip=False)
        self.path = str(root / "bin" / "python3")
        self.place = root / "lib" / f"python3.{MINOR}" / "site-packages"

    def add(
        self,
        name,
        version="1.0",
        *,
        requires="",
        needs=(),
        files=None,
        point="",
        record=True,
        place=None,
    ):
        """Install a distribution that *needs* others, as pip would."""
        place = place or self.place
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        if requires:
            metadata += f"Requires-Python: {requires}\n"
        metadata += "".join(f"Requires-Dist: {each}\n" for each in needs)
        files = {f"{name.replace('-', '_')}/__init__.py": "", **(files or {})}
        files[f"{info}/METADATA"] = metadata
        if point:
            files[f"{info}/entry_points.txt"] = f"[salt.loader]\n{name} = {point}\n"
        if record:
            listed = [*files, "../../bin/x", f"{info}/RECORD"]
            files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in listed)
        for path, text in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text)
        return place / info / "METADATA"


def inventory(python, owned=()):
    return distributions.inventory(
        python.path, run, lambda paths: set(paths) - set(map(str, owned))
    )


def stage(found, staged, python, minor=None, runner=run):
    return beside_salt.stage(found, staged, program=python, python=minor, run=runner)


def compiled(python, name="fastext"):
    python.add(name, files={f"{name}/fast{ABI}": "compiled"})
    (each,) = (each for each in inventory(python) if each.name == name)
    return each


def write_wheel(directory, name, minor):
    """Write a wheel with a compiled file for that minor version."""
    directory.mkdir(exist_ok=True)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp3{minor}-cp3{minor}-{platform}"
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": "",
        f"{name}/fast.cpython-3{minor}.so": "compiled",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(directory / f"{name}-1.0-{tag}.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)
