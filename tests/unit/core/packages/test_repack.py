import io
import os
import socket
import tarfile

import pytest

from saltext_safeupdate.core.packages.repack import (
    own_fields,
    parse_conffiles,
    parse_diversions,
    repack,
)
from tests.support.fakes import FakeRunner

STATUS = """\
Package: salt-minion
Status: hold ok installed
Priority: optional
Version: 3007.15
Config-Version: 3007.15
Conffiles:
 /etc/salt/minion 0123456789abcdef0123456789abcdef
Depends: salt-common (= 3007.15)
Description: distributed remote execution
 Over several lines,
 .
 with a gap.
Triggers-Pending: x
"""


def _members(path):
    """Return the members of an ar archive, in order."""
    data = path.read_bytes()
    assert data[:8] == b"!<arch>\n"
    found, at = {}, 8
    while at < len(data):
        header = data[at : at + 60]
        assert header[58:] == b"`\n"
        size = int(header[48:58])
        found[header[:16].decode().strip()] = data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    assert at == len(data)
    return found


def _tar(content):
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {
            info.name: (info, tar.extractfile(info).read() if info.isreg() else None)
            for info in tar
        }


@pytest.fixture
def package(tmp_path):
    """The files of a package below ``root``, and dpkg's answers about it."""
    root = tmp_path / "root"
    for path, text in {
        "etc/changed": "mine",
        "etc/obsolete": "old",
        "opt/tool": "#!/bin/sh\n",
        "opt/tool.other": "diverted",
        "opt/odd": "odd",
        "moved/file": "in it",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "opt/tool").chmod(0o755)
    (root / "opt/link").symlink_to("tool")
    (root / "opt/dangling").symlink_to("/nowhere")
    os.link(root / "opt/odd", root / "opt/twin")
    (root / "dir").symlink_to("moved")
    info = tmp_path / "info"
    info.mkdir()
    (info / "md5sums").write_text("sums")
    (info / "postinst").write_text("#!/bin/sh\nexit 0\n")
    (info / "postinst").chmod(0o755)
    names = "etc etc/changed etc/gone etc/obsolete opt opt/tool opt/link opt/dangling opt/odd"
    paths = [f"{root}/{name}" for name in f"{names} opt/twin dir dir/file opt/socket".split()]
    listed = ["/.", *paths, "package diverts others to: /x"]
    conffiles = (
        f" {root}/etc/changed 0123456789abcdef0123456789abcdef\n"
        f" {root}/etc/gone 0123456789abcdef0123456789abcdef\n"
        f" {root}/etc/obsolete 0123456789abcdef0123456789abcdef obsolete\n"
    )
    query = ("dpkg-query",)
    path_of = (*query, "--control-path", "salt-minion")
    diversion = f"diversion of {root}/opt/tool to {root}/opt/tool.other by another\n"
    run = FakeRunner(
        {
            (*query, "--listfiles", "salt-minion"): (0, "\n".join(listed), ""),
            (*query, "-W", "-f", "${Conffiles}", "salt-minion"): (0, conffiles, ""),
            ("dpkg-divert", "--list"): (0, diversion, ""),
            (*query, "-s", "salt-minion"): (0, STATUS, ""),
            (*query, "--control-list", "salt-minion"): (0, "md5sums\npostinst\nconffiles\n", ""),
            (*path_of, "md5sums"): (0, f"{info}/md5sums\n", ""),
            (*path_of, "postinst"): (0, f"{info}/postinst\n", ""),
        }
    )
    return root, run


def test_an_installed_package_becomes_a_package_file(package, tmp_path, monkeypatch):
    root, run = package
    # The address of a socket may not be long.
    monkeypatch.chdir(root / "opt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        repack(run, "salt-minion", str(tmp_path / "it.deb"))
    assert (tmp_path / "it.deb").stat().st_mode & 0o777 == 0o600
    members = _members(tmp_path / "it.deb")
    # dpkg reads them in this order.
    assert list(members) == ["debian-binary", "control.tar.gz", "data.tar.gz"]
    assert members["debian-binary"] == b"2.0\n"
    control = _tar(members["control.tar.gz"])
    assert set(control) == {"./control", "./conffiles", "./md5sums", "./postinst"}
    assert control["./conffiles"][1].decode() == f"{root}/etc/changed\n"
    assert control["./control"][1].decode() == own_fields(STATUS)
    assert control["./postinst"][0].mode == 0o755
    data = _tar(members["data.tar.gz"])
    names = {name.replace(str(root), "", 1) for name in data}
    assert names == {
        *(".", "./etc", "./etc/changed", "./opt", "./opt/tool", "./opt/link", "./opt/dangling"),
        *("./opt/odd", "./opt/twin", "./dir", "./dir/file"),
    }
    assert data[f".{root}/etc/changed"][1] == b"mine"
    assert data[f".{root}/opt/link"][0].linkname == "tool"
    assert data[f".{root}/opt/twin"][0].linkname == f".{root}/opt/odd"
    # What the package has there is a directory, whatever the administrator made of it.
    assert data[f".{root}/dir"][0].isdir()
    assert data[f".{root}/dir/file"][1] == b"in it"
    # The file is another package's now; ours is where it was moved to.
    assert data[f".{root}/opt/tool"][1] == b"diverted"


def test_the_fields_that_dpkg_added_are_left_out():
    assert own_fields(STATUS) == (
        "Package: salt-minion\nPriority: optional\nVersion: 3007.15\n"
        "Depends: salt-common (= 3007.15)\nDescription: distributed remote execution\n"
        " Over several lines,\n .\n with a gap.\n"
    )


def test_configuration_files():
    some = "0123456789abcdef0123456789abcdef"
    assert parse_conffiles(
        f" /etc/a {some}\n /etc/with a space {some}\n /etc/old {some} obsolete\n"
        f" /etc/going {some} remove-on-upgrade\n /etc/new newconffile\n"
    ) == {
        "/etc/a": True,
        "/etc/with a space": True,
        "/etc/old": False,
        "/etc/going": False,
        "/etc/new": True,
    }
    assert parse_conffiles("") == {}


def test_diversions():
    text = (
        "diversion of /bin/a to /bin/a.real by other\n"
        "diversion of /bin/b to /bin/b.real by salt-minion\n"
        "local diversion of /bin/c to /bin/c.real\n"
    )
    # Its own moves the files of others.
    assert parse_diversions(text, "salt-minion") == {
        "/bin/a": "/bin/a.real",
        "/bin/c": "/bin/c.real",
    }
