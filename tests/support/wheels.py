"""Wheels of this extension in other versions, and places where it is installed."""

from __future__ import annotations

import zipfile

from saltext_safeupdate import __version__


def files(version):
    info = f"saltext_safeupdate-{version}.dist-info"
    return {
        "saltext_safeupdate/__init__.py": f'"""It."""\n\n__version__ = "{version}"\n',
        "saltext_safeupdate/core/__init__.py": f"# {version}",
        f"saltext_safeupdate/only_in_{version.replace('.', '_')}.py": "",
        f"{info}/METADATA": f"Name: saltext-safeupdate\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }


def write(directory, version, **more):
    """Write the wheel; *more* are files that it has besides."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"saltext_safeupdate-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files(version), **more}.items():
            wheel.writestr(name, text)
    return path


def install(place, version):
    """Have that version in the place, as pip installs it."""
    for name, text in files(version).items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (place / "saltext_safeupdate" / "__pycache__").mkdir()
    return place


def there(place):
    """Return all files of it, relative to the place, without byte code."""
    found = (path for path in place.rglob("*") if path.is_file() and "__pycache__" not in str(path))
    return {str(path.relative_to(place)): path.read_text() for path in found}


def rebuild(site, directory, version, **more):
    """
    Write the wheel of another version from the one that is unpacked in *site*.

    *more* is text to add to files of the package.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"saltext_safeupdate-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in sorted(site.rglob("*")):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            name, content = str(file.relative_to(site)), file.read_bytes()
            if "/" in name and name.partition("/")[2] in ("__init__.py", "METADATA", "RECORD"):
                content = content.replace(__version__.encode(), version.encode())
            content += more.get(name.partition("/")[2], "").encode()
            wheel.writestr(name.replace(f"-{__version__}.dist", f"-{version}.dist"), content)
    return path
