"""apt and dpkg, the real ones: what an update asks of them."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import end, run
from devtools.lab.container import Lab
from devtools.lab.recipes import MINION_PACKAGES as OWN
from tests.lab.managed import BINDS, Managed, Refused, kill_and_fix, served, versions
from tests.support.waiting import wait_for

OFFERS = ("salt-minion_3006.28", "salt-minion_3007.15", "salt-minion_3008.3")
SOURCE = "/etc/apt/sources.list.d/lab.list"
SMALL = "/srv/small"
POSTINST = """\
#!/bin/sh
set -e
echo "$0 $*" >> /var/tmp/scripts
while [ -e /run/block-postinst ]; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def machine(lab: Lab) -> Iterator[Managed]:
    """A minion whose packages come over its network, and a place for small packages."""
    container = lab.container("3007.15", offers=OFFERS, binds=BINDS)
    container.write(SOURCE, "deb [trusted=yes] http://127.0.0.1:8000/ ./\n")
    container.up()
    try:
        managed = Managed(container, "apt")
        with served(container, "/srv/repo"):
            managed("refresh")
        yield managed
    finally:
        container.down()


def _clean(machine: Managed, *packages: str) -> None:
    """Assert that the package database is whole and true."""
    assert machine.run("dpkg", "--audit").stdout == ""
    assert machine.run("dpkg", "--verify", *packages).stdout == ""
    assert machine("unfinished", packages) == []


def _minion(machine: Managed) -> tuple[str, str]:
    return machine.container.packages("salt-minion")["salt-minion"]


def _build(
    machine: Managed,
    name: str,
    version: str,
    *,
    depends: str = "",
    files: dict[str, str] | None = None,
    conffiles: tuple[str, ...] = (),
    links: dict[str, str] | None = None,
) -> str:
    """Build a small package in the container's own repository; return its path."""
    stage = f"/var/tmp/stage/{name}_{version}"
    field = f"Depends: {depends}\n" if depends else ""
    control = (
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nInstalled-Size: 12\n"
        f"Maintainer: lab <lab@example.invalid>\n{field}Description: made for a test\n over two\n"
    )
    container = machine.container
    container.write(f"{stage}/DEBIAN/control", control)
    container.write(f"{stage}/DEBIAN/postinst", POSTINST, 0o755)
    container.write(f"{stage}/DEBIAN/prerm", POSTINST, 0o755)
    if conffiles:
        container.write(f"{stage}/DEBIAN/conffiles", "".join(f"{c}\n" for c in conffiles))
    for path, text in (files or {f"/opt/{name}/version": version}).items():
        container.write(stage + path, text)
    for path, target in (links or {}).items():
        machine.run("ln", "-s", target, stage + path)
    file = f"{SMALL}/{name}_{version}_all.deb"
    machine.run("mkdir", "-p", SMALL)
    machine.run("dpkg-deb", "--root-owner-group", "--build", stage, file)
    return file


def _offer_small(machine: Managed) -> None:
    """Put what was built on offer."""
    index = f"cd {SMALL} && apt-ftparchive packages . > Packages"
    machine.run("sh", "-c", index)
    machine.container.write(
        "/etc/apt/sources.list.d/small.list", f"deb [trusted=yes] file:{SMALL} ./\n"
    )
    machine.run("apt-get", "update", "-o", f"Dir::Etc::sourcelist={_SMALL_LIST}", *_ONLY_THAT)


_SMALL_LIST = "/etc/apt/sources.list.d/small.list"
_ONLY_THAT = ("-o", "Dir::Etc::sourceparts=-", "-o", "APT::Get::List-Cleanup=0")


def test_what_is_on_offer(machine: Managed) -> None:
    offers = machine("candidates", ["salt-minion", "no-such-package"])
    assert offers == {"salt-minion": ["3008.3", "3007.15", "3006.28"], "no-such-package": []}
    assert machine("targets", ["salt-minion"], "3006.28") == {"salt-minion": "3006.28"}
    assert machine("targets", ["salt-minion"], None) == {"salt-minion": "3008.3"}
    with pytest.raises(Refused, match=r"on offer: salt-minion 3008\.3, 3007\.15") as caught:
        machine("targets", ["salt-minion"], "3009.1")
    assert caught.value.kind == "InputError"
    with pytest.raises(Refused, match="apt would install no version") as caught:
        machine("targets", ["no-such-package"], None)
    assert caught.value.kind == "InputError"


def test_a_pin_of_the_administrator_decides_what_is_newest(machine: Managed) -> None:
    pin = "/etc/apt/preferences.d/salt"
    machine.container.write(pin, "Package: salt-minion\nPin: version 3007.*\nPin-Priority: 990\n")
    assert machine("targets", ["salt-minion"], None) == {"salt-minion": "3007.15"}
    assert machine("targets", ["salt-minion"], "3008.3") == {"salt-minion": "3008.3"}
    machine.run("rm", pin)


def test_up_and_down_without_network_once_it_is_staged(machine: Managed) -> None:
    """Version-locked before and after; installing again what is there does nothing at all."""
    machine.container.write("/etc/salt/minion.d/mine.conf", "id: kept\n")
    with served(machine.container, "/srv/repo"):
        wanted = dict.fromkeys(OWN, "3008.3")
        need = machine("needs", wanted)
        new = machine.files("download", wanted, "/var/lib/new")
        old = machine.files("secure", OWN, "/var/lib/old")
    assert versions(new) == wanted
    assert versions(old) == dict.fromkeys(OWN, "3007.15")
    assert not any("repacked" in file.path for file in old)
    assert need >= sum(machine.path(file).stat().st_size for file in new)
    assert {machine.path(file).stat().st_mode & 0o777 for file in new} == {0o600}
    assert _minion(machine)[0] == "3007.15"
    machine.run("apt-mark", "hold", *OWN)
    machine("verify", new)
    for files, version in ((new, "3008.3"), (old, "3007.15")):
        began = time.monotonic()
        machine("install", files)
        took = time.monotonic() - began
        assert _minion(machine) == (version, "hold ok installed")
        assert machine.run("salt-minion", "--version").stdout.split()[1] == version
        _clean(machine, *OWN)
        before = machine.container.service()["InvocationID"]
        machine("install", files)
        assert machine.container.service()["InvocationID"] == before
        print(f"installing {version} with dpkg: {took:.1f} s")
    assert machine.container.read("/etc/salt/minion.d/mine.conf") == "id: kept\n"
    assert machine("version_locked", OWN) == sorted(OWN)
    machine("lock_versions", OWN, False)
    assert machine("version_locked", OWN) == []


def test_what_cannot_be_fetched_changes_nothing(machine: Managed) -> None:
    with pytest.raises(Refused, match=r"exit status 100: E: Failed to fetch") as caught:
        machine.files("download", {"salt-minion": "3008.3"}, "/var/lib/none")
    assert caught.value.kind == "CommandError"
    assert machine.run("ls", "-A", "/var/lib/none").stdout == ""
    assert _minion(machine)[0] == "3007.15"


def test_an_altered_file_is_refused(machine: Managed) -> None:
    _build(machine, "altered", "1")
    _build(machine, "altered", "2")
    _offer_small(machine)
    machine.run("apt-get", "install", "--yes", "altered=1")
    files = machine.files("download", {"altered": "2"}, "/var/lib/altered")
    content = machine.path(files[0]).read_bytes()
    machine.path(files[0]).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for method in ("verify", "install"):
        with pytest.raises(Refused, match=r"has changed: SHA-256 .* Nothing was inst") as caught:
            machine(method, files)
        assert caught.value.kind == "VerificationError"
    machine.path(files[0]).write_bytes(content)
    with pytest.raises(Refused, match="is altered 2, not altered 3"):
        machine("verify", [files[0]._replace(version="3")])
    machine.path(files[0]).unlink()
    with pytest.raises(Refused, match="cannot be read"):
        machine("verify", files)
    assert machine("installed", ["altered"]) == {"altered": "1"}


def test_a_file_that_was_altered_in_the_repository_is_refused(machine: Managed) -> None:
    path = _build(machine, "swapped", "1")
    _offer_small(machine)
    file = machine.container.path(path)
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(Refused, match="Hash Sum mismatch") as caught:
        machine.files("download", {"swapped": "1"}, "/var/lib/swapped")
    assert caught.value.kind == "CommandError"
    assert machine.run("ls", "-A", "/var/lib/swapped").stdout == ""


def test_a_repository_without_signature_is_refused(machine: Managed) -> None:
    """... unless the administrator trusts it, which is told."""
    assert "trusted=yes in" in machine("signature_policy")
    sources = "/etc/apt/sources.list.d"
    machine.run("mv", sources, f"{sources}.kept")
    machine.run("cp", "-a", "/var/lib/apt/lists", "/var/lib/apt/lists.kept")
    _build(machine, "unsigned", "1")
    machine.run("sh", "-c", f"cd {SMALL} && apt-ftparchive packages . > Packages")
    machine.container.write(f"{sources}/small.list", f"deb file:{SMALL} ./\n")
    try:
        assert machine("signature_policy") is None
        with pytest.raises(Refused, match=r"does not have a Release"):
            machine("refresh")
        # As if an older policy had let the index in: the package itself is refused too.
        machine.run("apt-get", "update", "--allow-insecure-repositories")
        assert machine("candidates", ["unsigned"]) == {"unsigned": ["1"]}
        with pytest.raises(Refused, match="could not be authenticated"):
            machine.files("download", {"unsigned": "1"}, "/var/lib/unsigned")
        assert machine.run("ls", "-A", "/var/lib/unsigned").stdout == ""
        assert machine("installed", ["unsigned"]) == {}
        machine.container.write(
            "/etc/apt/apt.conf.d/99any", 'APT::Get::AllowUnauthenticated "yes";\n'
        )
        assert "AllowUnauthenticated" in machine("signature_policy")
    finally:
        machine.run("rm", "-rf", "/etc/apt/apt.conf.d/99any", sources, "/var/lib/apt/lists")
        machine.run("mv", f"{sources}.kept", sources)
        machine.run("mv", "/var/lib/apt/lists.kept", "/var/lib/apt/lists")


def test_dependencies_come_along_and_nothing_else_goes(machine: Managed) -> None:
    _build(machine, "dep-agent", "1")
    _build(machine, "dep-agent", "2-1", depends="dep-common (= 2-1)")
    _build(machine, "dep-common", "2-1", depends="dep-library (>= 5)")
    _build(machine, "dep-library", "1:5")
    _build(machine, "dep-user", "1", depends="dep-agent (= 1)")
    _offer_small(machine)
    machine.run("apt-get", "install", "--yes", "dep-agent=1")
    assert machine("targets", ["dep-agent"], "2") == {"dep-agent": "2-1"}
    files = machine.files("download", {"dep-agent": "2-1"}, "/var/lib/dep")
    assert versions(files) == {"dep-agent": "2-1", "dep-common": "2-1", "dep-library": "1:5"}
    assert machine("needs", files) >= machine("needs", {"dep-agent": "2-1"}) > 3 * 12 * 1024
    machine("install", files)
    assert machine("installed", ["dep-agent", "dep-library"]) == {
        "dep-agent": "2-1",
        "dep-library": "1:5",
    }
    _clean(machine, "dep-agent", "dep-common", "dep-library")
    machine("install", machine.files("download", {"dep-agent": "1"}, "/var/lib/dep-back"))
    machine.run("apt-get", "install", "--yes", "dep-user")
    with pytest.raises(Refused, match=r"would remove dep-user\. Nothing was changed"):
        machine.files("download", {"dep-agent": "2-1"}, "/var/lib/dep-no")
    assert machine("installed", ["dep-user"]) == {"dep-user": "1"}


# A proxy that knows one repository, which wants a name and a password.
GATED = """\
import functools, http.server, sys
class Gated(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        host = "http://gated.invalid/"
        if not self.path.startswith(host):
            return self.send_error(403)
        if self.headers.get("Authorization") != "Basic bWU6c2VjcmV0":
            return self.send_error(401)
        self.path = self.path.removeprefix(host[:-1])
        super().do_GET()
gated = functools.partial(Gated, directory=sys.argv[1])
http.server.ThreadingHTTPServer(("127.0.0.1", 8001), gated).serve_forever()
"""
INDEX = "cd $1; apt-ftparchive packages . >Packages; apt-ftparchive release . >/var/tmp/Release"
OFFERED_THERE = "/srv/gated"
GPG = ("gpg", "--batch", "--quiet", "--yes", "--passphrase", "")
NEEDED = {
    "key": "/etc/apt/keyrings/gated.gpg",
    "proxy": "/etc/apt/apt.conf.d/99gated",
    "credentials": "/etc/apt/auth.conf.d/gated.conf",
}
OTHERS = {
    "key": "of somebody else",
    "proxy": 'Acquire::http::Proxy "http://127.0.0.1:9";\n',
    "credentials": "machine http://gated.invalid login me password expired\n",
}


@pytest.mark.parametrize("what", NEEDED)
def test_what_it_takes_to_fetch_counts_at_the_position_only(
    machine: Managed, tmp_path: Path, what: str
) -> None:
    """
    What a deferred change needs is downloaded at its position; behind it nothing is asked.

    ===========  ===================  ============================
    what         gone before          changed, then gone behind it
    ===========  ===================  ============================
    key          (its index stays)    it is installed
    proxy        cannot be fetched    it is installed
    credentials  cannot be fetched    it is installed
    ===========  ===================  ============================
    """
    name, container = f"gated-{what}", machine.container
    # Nobody else offers it.
    machine.run("mkdir", "-p", OFFERED_THERE)
    machine.run("mv", _build(machine, name, "1"), OFFERED_THERE)
    source = "/etc/apt/sources.list.d/gated.list"
    signed = f"deb [signed-by={NEEDED['key']}] http://gated.invalid/ ./\n"
    container.write(source, signed)
    container.write(NEEDED["proxy"], 'Acquire::http::Proxy "http://127.0.0.1:8001";\n')
    login = "machine http://gated.invalid login me password secret\n"
    container.write(NEEDED["credentials"], login)
    machine.run("mkdir", "-p", "/etc/apt/keyrings")
    machine.run("sh", "-c", INDEX, "sh", OFFERED_THERE)
    key, index = (str(container.path(each)) for each in (NEEDED["key"], "/var/tmp/Release"))
    for argv in (
        ("--quick-generate-key", "lab@example.invalid", "default", "default", "never"),
        ("--output", key, "--export"),
        ("--output", str(container.path(f"{OFFERED_THERE}/InRelease")), "--clearsign", index),
    ):
        run([*GPG, "--homedir", str(tmp_path), *argv], timeout=60)
    run(["gpgconf", "--homedir", str(tmp_path), "--kill", "gpg-agent"], timeout=60)
    refresh = ("apt-get", "update", "-o", f"Dir::Etc::sourcelist={source}", *_ONLY_THAT)
    refresh += ("--error-on=any",)
    server = container.host_popen([sys.executable, "-c", GATED, str(container.path(OFFERED_THERE))])
    try:
        probe = "import socket; socket.create_connection(('127.0.0.1', 8001)).close()"
        wait_for(lambda: machine.run("python3", "-c", probe, check=False).ok, "the proxy")
        machine.run(*refresh)
        path, kept = NEEDED[what], container.read(NEEDED[what]) if what != "key" else None
        if kept is not None:
            machine.run("rm", path)
            with pytest.raises(Refused, match="Failed to fetch"):
                machine.files("download", {name: "1"}, f"/var/lib/{name}-none")
            container.write(path, kept)
        files = machine.files("download", {name: "1"}, f"/var/lib/{name}")
        for text in (OTHERS[what], None):
            if text is None:
                machine.run("rm", path)
            else:
                container.write(path, text)
            assert not machine.run(*refresh, check=False).ok
        machine("install", files)
        assert machine("installed", [name]) == {name: "1"}
        _clean(machine, name)
    finally:
        end(server)
        machine.run("rm", "-rf", source, OFFERED_THERE, *NEEDED.values())


def test_a_copy_from_the_cache_has_to_be_whole(machine: Managed) -> None:
    path = _build(machine, "cached", "1:1")
    machine.run("dpkg", "--install", path)
    cached = "/var/cache/apt/archives/cached_1%3a1_all.deb"
    machine.run("cp", path, cached)
    (file,) = machine.files("secure", ["cached"], "/var/lib/cached-1")
    assert machine.path(file).read_bytes() == machine.container.path(path).read_bytes()
    machine.run("truncate", "--size=-100", cached)
    (file,) = machine.files("secure", ["cached"], "/var/lib/cached-2")
    assert file.path.endswith("cached_1%3a1.repacked.deb")
    machine("install", [file])
    with pytest.raises(Refused, match="is not installed"):
        machine("secure", ["no-such-package"], "/var/lib/cached-2")


def test_a_package_that_is_nowhere_any_more_is_packed_again(machine: Managed) -> None:
    """The same files, owners and scripts; configuration as it is; and dpkg sees no difference."""
    path = _build(
        machine,
        "again",
        "1.0-1",
        files={
            "/etc/again/changed": "packaged\n",
            "/etc/again/removed": "packaged\n",
            "/etc/again/same": "packaged\n",
            "/opt/again/bin/it": "#!/bin/sh\necho again\n",
            "/opt/again/here/file": "here\n",
            "/opt/again/a name with spaces": "x\n",
            "/lib/again/old place": "x\n",
        },
        conffiles=("/etc/again/changed", "/etc/again/removed", "/etc/again/same"),
        links={"/opt/again/link": "bin/it", "/opt/again/dangling": "/nowhere"},
    )
    machine.run("dpkg", "--install", path)
    machine.run("dpkg", "--install", _build(machine, "other", "1", conffiles=()))
    machine.container.write("/etc/again/changed", "mine\n")
    machine.run("rm", "/etc/again/removed")
    # A directory that the administrator has moved, and a file that another package has.
    machine.run("mv", "/opt/again/here", "/var/tmp/here")
    machine.run("ln", "-s", "/var/tmp/here", "/opt/again/here")
    divert = ("dpkg-divert", "--package", "other", "--rename", "--add", "/opt/again/bin/it")
    machine.run(*divert)
    machine.container.write("/opt/again/bin/it", "the other's\n")
    listed = machine.run("dpkg-query", "--listfiles", "again").stdout
    scripts = _control(machine, path)
    verified = machine.run("dpkg", "--verify", "again", check=False).stdout.splitlines()
    assert verified == ["??5?????? c /etc/again/changed", "missing   c /etc/again/removed"]

    (copy,) = machine.files("secure", ["again"], "/var/lib/again")
    assert _control(machine, copy.path) == {
        **scripts,
        "conffiles": "/etc/again/changed\n/etc/again/same\n",
    }
    # One file is as long as its content is now: its owner and mode are told, not its size.
    contents = [_contents(machine, each, "mode", "name") for each in (path, copy.path)]
    assert contents[1] == [row for row in contents[0] if not row.endswith("/etc/again/removed")]

    # The way back: another version came in between.
    later = {"/opt/again/version": "2\n", "/opt/again/here/file": "2\n"}
    machine.run("dpkg", "--install", _build(machine, "again", "2.0-1", files=later))
    machine("install", [copy])
    assert machine("installed", ["again"]) == {"again": "1.0-1"}
    assert machine.run("dpkg-query", "--listfiles", "again").stdout.splitlines() == [
        line for line in listed.splitlines() if line != "/etc/again/removed"
    ]
    assert machine.run("dpkg", "--audit").stdout == ""
    assert machine.run("dpkg", "--verify", "again", check=False).stdout.splitlines() == verified[:1]
    assert machine.container.read("/etc/again/changed") == "mine\n"
    assert machine.container.read("/etc/again/same") == "packaged\n"
    assert machine.run("cat", "/opt/again/bin/it").stdout == "the other's\n"
    assert machine.run("readlink", "/opt/again/here").stdout == "/var/tmp/here\n"


def _control(machine: Managed, path: str) -> dict[str, str]:
    """Return the control members of a package file, but for the checksums that dpkg makes."""
    folder = "/var/tmp/control"
    machine.run("rm", "-rf", folder)
    machine.run("dpkg-deb", "--control", path, folder)
    names = machine.run("ls", folder).stdout.split()
    found = {
        name: machine.run("cat", f"{folder}/{name}").stdout for name in names if name != "md5sums"
    }
    # dpkg keeps the fields in an order of its own.
    fields = re.split(r"\n(?! )", found["control"])
    return {**found, "control": "\n".join(sorted(fields))}


def _contents(machine: Managed, path: str, *columns: str) -> list[str]:
    """Return the files of a package file; mode comes with the owner, name with a link's target."""
    rows = machine.run("dpkg-deb", "--contents", path).stdout.splitlines()
    where = {"mode": slice(0, 2), "size": slice(2, 3), "name": slice(5, None)}
    return sorted(" ".join(w for c in columns for w in row.split()[where[c]]) for row in rows)


@pytest.mark.soak
def test_the_minion_packed_again(machine: Managed) -> None:
    """The whole package: 14,000 files, put back over the next version, with no repository."""
    with served(machine.container, "/srv/repo"):
        new = machine.files("download", dict.fromkeys(OWN, "3008.3"), "/var/lib/new")
        original = machine.files("download", dict.fromkeys(OWN, "3007.15"), "/var/lib/original")
    assert original == []
    began = time.monotonic()
    copies = machine.files("secure", OWN, "/var/lib/packed")
    size = sum(machine.path(copy).stat().st_size for copy in copies)
    print(f"packing 3007.15 again: {time.monotonic() - began:.1f} s, {size / 1e6:.0f} MB")
    for copy in copies:
        assert copy.path.endswith(".repacked.deb")
        found = ("find", "/srv/repo/pool", "-name", f"{copy.package}_3007.15_amd64.deb")
        path = machine.run(*found).stdout.split()[-1]
        assert _control(machine, copy.path) == _control(machine, path)
        everything = ("mode", "size", "name")
        assert _contents(machine, copy.path, *everything) == _contents(machine, path, *everything)
    machine("install", new)
    machine("install", copies)
    assert _minion(machine) == ("3007.15", "install ok installed")
    _clean(machine, *OWN)
    assert machine.run("salt-minion", "--version").stdout.split()[1] == "3007.15"


@pytest.mark.parametrize("fix", ["repair", pytest.param("install", marks=pytest.mark.soak), "back"])
def test_dpkg_is_killed_while_it_configures(machine: Managed, fix: str) -> None:
    name = f"configured-{fix}"
    _build(machine, name, "1")
    _build(machine, name, "2")
    _offer_small(machine)
    machine.run("apt-get", "install", "--yes", f"{name}=1")
    machine.run("apt-mark", "hold", name)
    old = machine.files("secure", [name], f"/var/lib/{name}-old")
    new = machine.files("download", {name: "2"}, f"/var/lib/{name}-new")
    container = machine.container
    container.write("/run/block-postinst", "")
    container.write("/var/tmp/scripts", "")
    configuring = f"{name}.postinst configure"
    # The script of the old version ends first, which is not to be in its way.
    container.write(f"/var/lib/dpkg/info/{name}.prerm", "#!/bin/sh\n", 0o755)
    kill_and_fix(
        machine,
        fix,
        [name],
        new=new,
        old=old,
        programs="dpkg",
        moment=lambda: configuring in container.read("/var/tmp/scripts"),
        unfinished=[name],
        blocked=("/run/block-postinst", "postinst"),
    )
    version = "1" if fix == "back" else "2"
    assert machine("installed", [name]) == {name: version}
    assert machine("version_locked", [name]) == [name]
    _clean(machine, name)


@pytest.mark.parametrize("fix", [pytest.param("repair", marks=pytest.mark.soak), "install", "back"])
def test_dpkg_is_killed_while_it_unpacks(machine: Managed, fix: str) -> None:
    """The package is big enough to be caught between its first file and its last."""
    with served(machine.container, "/srv/repo"):
        old = machine.files("secure", OWN, "/var/lib/old")
        new = machine.files("download", dict.fromkeys(OWN, "3008.3"), "/var/lib/new")
    machine.run("apt-mark", "hold", *OWN)
    unpacked = machine.container.path("/opt/saltstack/salt/bin")
    kill_and_fix(
        machine,
        fix,
        OWN,
        new=new,
        old=old,
        programs="dpkg|dpkg-deb|tar",
        moment=lambda: any(entry.name.endswith(".dpkg-new") for entry in os.scandir(unpacked)),
        unfinished=["salt-common"],
        repository=lambda: served(machine.container, "/srv/repo"),
    )
    assert _minion(machine) == ("3007.15" if fix == "back" else "3008.3", "hold ok installed")
    assert machine("version_locked", OWN) == sorted(OWN)
    _clean(machine, *OWN)
    scraps = ("(", "-name", "*.dpkg-new", "-o", "-name", "*.dpkg-tmp", ")")
    assert machine.run("find", "/opt", "/lib/systemd", "/etc/salt", *scraps).stdout == ""
    machine("lock_versions", OWN, False)
    machine("install", old)
    assert _minion(machine) == ("3007.15", "install ok installed")
