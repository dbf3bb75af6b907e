"""rpm behind dnf and behind zypper, the real ones: what an update asks of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from devtools.lab.container import Container, Lab
from tests.lab.managed import BINDS, Managed, Refused, kill_and_fix, served, versions

REPOSITORY = "/srv/rpms"
REPO_FILES = {"dnf": "/etc/yum.repos.d/lab.repo", "zypper": "/etc/zypp/repos.d/lab.repo"}
REPO = """\
[lab]
name = lab
baseurl = http://127.0.0.1:8000/
enabled = 1
autorefresh = 0
metadata_expire = 86400
gpgcheck = {check}
repo_gpgcheck = 0
"""
BUILD = ("rpmbuild", "-bb", "--quiet", "--define", f"_rpmdir {REPOSITORY}")
FLAT = ("--define", "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm")
GPG = "--define '__gpg /usr/bin/gpg' --define '_gpg_name lab@example.invalid'"
# The minion and the sibling that is locked to it, as distributions package them.
SPEC = """\
Name: salt{flavour}
Version: {version}
Release: {release}
Summary: made for a test
License: none
BuildArch: noarch
{requires}
%description
Made for a test.
%package -n salt-minion{flavour}
Summary: made for a test
Requires: %{{name}} = %{{version}}-%{{release}}
%description -n salt-minion{flavour}
Made for a test.
%install
mkdir -p %{{buildroot}}/opt/salt{flavour}/lib %{{buildroot}}/etc/salt{flavour}
echo {version} > %{{buildroot}}/opt/salt{flavour}/version
for i in $(seq {files}); do echo {version} $i > %{{buildroot}}/opt/salt{flavour}/lib/$i; done
echo {version} > %{{buildroot}}/etc/salt{flavour}/minion
%files
/opt/salt{flavour}/lib
%files -n salt-minion{flavour}
/opt/salt{flavour}/version
%config(noreplace) /etc/salt{flavour}/minion
%post -n salt-minion{flavour}
echo post {version} $1 >> /var/tmp/scripts
while [ -e /run/block-post ]; do sleep 0.1; done
%preun -n salt-minion{flavour}
echo preun {version} $1 >> /var/tmp/scripts
"""
PLAIN = """\
Name: {name}
Version: {version}
Release: 1
Summary: made for a test
License: none
BuildArch: noarch
{tags}
%description
Made for a test.
%files
"""
OWN = ("salt", "salt-minion")
# rpm installs alone, whichever front end has fetched.
ONE_FRONT_END = pytest.mark.parametrize("machine", ["dnf"], indirect=True)


@pytest.fixture(scope="module")
def container(lab: Lab) -> Iterator[Container]:
    """A machine with both front ends, a signing key, and packages on offer."""
    machine = lab.container(None, extra_layers=[lab.cache.rpm_tools()], binds=BINDS).up()
    try:
        # Nothing of this Debian is a package of rpm's.
        _plain(machine, "base", "1", "Provides: /bin/sh")
        machine.run(["rpm", "--install", f"{REPOSITORY}/base-1-1.noarch.rpm"])
        key = ["gpg", "--batch", "--passphrase", "", "--quick-gen-key", "lab@example.invalid"]
        machine.run([*key, "rsa2048", "sign"])
        machine.run(["gpg", "--export", "--armor", "--output", "/root/key", "lab@example.invalid"])
        machine.run(["rpm", "--import", "/root/key"])
        for version, requires in (("3006.28", ""), ("3007.15", ""), ("3008.3", "library >= 2")):
            _salt(machine, version, requires=f"Requires: {requires}" if requires else "")
        _plain(machine, "library", "2")
        _offer(machine)
        yield machine
    finally:
        machine.down()


@pytest.fixture(params=["dnf", pytest.param("zypper", marks=pytest.mark.soak)])
def machine(container: Container, request: pytest.FixtureRequest) -> Iterator[Managed]:
    """3007.15 is installed, no version is locked, the repository is signed, and it answers."""
    managed = Managed(container, request.param)
    for name, file in REPO_FILES.items():
        if name == request.param:
            container.write(file, REPO.format(check=1))
        else:
            managed.run("rm", "-f", file)
    files = [f"{REPOSITORY}/{name}-3007.15-1.noarch.rpm" for name in OWN]
    managed.run("rpm", "--upgrade", "--oldpackage", "--replacepkgs", *files)
    container.write("/var/tmp/scripts", "")
    with served(container, REPOSITORY):
        managed("refresh")
        managed("lock_versions", OWN, False)
        yield managed


def _plain(container: Container, name: str, version: str, tags: str = "") -> None:
    spec = f"/var/tmp/{name}.spec"
    container.write(spec, PLAIN.format(name=name, version=version, tags=tags))
    container.run([*BUILD, *FLAT, spec])


def _salt(
    container: Container,
    version: str,
    *,
    release: str = "1",
    flavour: str = "",
    files: int = 3,
    requires: str = "",
) -> None:
    spec = f"/var/tmp/salt{flavour}.spec"
    values = {"flavour": flavour, "version": version, "release": release}
    container.write(spec, SPEC.format(files=files, requires=requires, **values))
    container.run([*BUILD, *FLAT, spec])


def _offer(container: Container, sign: bool = True) -> None:
    """Put what was built on offer."""
    if sign:
        script = (
            f"rpmsign --define '_gpg_name lab@example.invalid' {GPG} --addsign {REPOSITORY}/*.rpm"
        )
        container.run(["sh", "-c", script])
    container.run(["createrepo_c", "--quiet", "--update", REPOSITORY])


def _clean(machine: Managed, version: str, names: tuple[str, ...] = OWN) -> None:
    """Assert that the database is true: one version of each, and the files are its."""
    rows = machine.run("rpm", "-q", "--qf", r"%{NAME} %{VERSION}\n", *names).stdout.split("\n")
    assert sorted(filter(None, rows)) == sorted(f"{name} {version}" for name in names)
    altered = machine.run("rpm", "--verify", *names, check=False).stdout.splitlines()
    assert [line for line in altered if " c /" not in line] == []
    assert machine("unfinished", names) == []


def test_what_is_on_offer(machine: Managed) -> None:
    offers = machine("candidates", [*OWN, "no-such-package"])
    three = ["3008.3-1", "3007.15-1", "3006.28-1"]
    assert offers == {"salt": three, "salt-minion": three, "no-such-package": []}
    assert machine("siblings", ["salt-minion"]) == ["salt", "salt-minion"]
    assert machine("targets", OWN, "3006.28") == dict.fromkeys(OWN, "3006.28-1")
    assert machine("targets", OWN, "3006.28-1") == dict.fromkeys(OWN, "3006.28-1")
    assert machine("targets", OWN, None) == dict.fromkeys(OWN, "3008.3-1")
    with pytest.raises(Refused, match=r"on offer: salt 3008\.3-1, 3007\.15-1") as caught:
        machine("targets", OWN, "3009.1")
    assert caught.value.kind == "InputError"
    with pytest.raises(Refused, match="no-such-package is not on offer") as caught:
        machine("targets", ["no-such-package"], None)
    assert caught.value.kind == "InputError"


def test_up_and_down_without_network_once_it_is_staged(
    container: Container, machine: Managed
) -> None:
    """Version-locked before and after; a dependency comes along; changed configuration stays."""
    container.write("/etc/salt/minion", "mine\n")
    machine("lock_versions", OWN, True)
    assert machine("version_locked", OWN) == sorted(OWN)
    target = machine("targets", OWN, "3008.3")
    assert target == dict.fromkeys(OWN, "3008.3-1")
    need = machine("needs", target)
    new = machine.files("download", target, f"/var/lib/{machine.name}-new")
    old = machine.files("secure", OWN, f"/var/lib/{machine.name}-old")
    assert versions(new) == {"library": "2-1", **target}
    assert versions(old) == dict.fromkeys(OWN, "3007.15-1")
    assert need >= sum(machine.path(file).stat().st_size for file in new if "salt" in file.path)
    assert machine("needs", new) > sum(machine.path(file).stat().st_size for file in new)
    assert machine.path(new[0]).stat().st_mode & 0o777 == 0o600
    assert machine("download", dict.fromkeys(OWN, "3007.15-1"), "/var/lib") == []
    _clean(machine, "3007.15")
    # Nobody answers at that address, and what the front end has in its cache is out of date.
    gone = REPO.format(check=1).replace(":8000", ":9").replace("86400", "0")
    container.write(REPO_FILES[machine.name], gone)
    for files, version in ((new, "3008.3"), (old, "3007.15")):
        machine("install", files)
        _clean(machine, version)
        assert machine("version_locked", OWN) == sorted(OWN)
        scripts = container.read("/var/tmp/scripts")
        assert f"post {version} 2\n" in scripts
        machine("install", files)
        assert container.read("/var/tmp/scripts") == scripts
    assert container.read("/etc/salt/minion") == "mine\n"
    machine("lock_versions", OWN, False)
    assert machine("version_locked", OWN) == []
    machine.run("rpm", "--erase", "library")


def test_a_lock_with_a_pattern_is_one_and_stays(container: Container, machine: Managed) -> None:
    locks = "/etc/dnf/plugins/versionlock.list"
    before = container.read(locks)
    if machine.name == "dnf":
        container.write(locks, f"{before}salt*-0:3007.15-1.*\n")
    else:
        machine.run("zypper", "--non-interactive", "addlock", "salt*")
    assert machine("version_locked", [*OWN, "library"]) == sorted(OWN)
    target = machine("targets", OWN, "3008.3")
    new = machine.files("download", target, f"/var/lib/{machine.name}-pattern")
    assert versions(new) == {"library": "2-1", **target}
    machine("lock_versions", OWN, False)
    assert machine("version_locked", OWN) == sorted(OWN)
    if machine.name == "dnf":
        container.write(locks, before)
    else:
        machine.run("zypper", "--non-interactive", "removelock", "salt*")
    assert machine("version_locked", OWN) == []


@pytest.mark.parametrize("name", ["-y", "--downloaddir=/etc"])
def test_an_option_is_no_package(machine: Managed, name: str) -> None:
    with pytest.raises(Refused, match=f"{name} is not the name of a package"):
        machine("targets", [name], None)
    assert machine("installed", [name]) == {}
    assert machine("unfinished", [name]) == []


def test_an_altered_file_is_refused(machine: Managed) -> None:
    target = machine("targets", OWN, "3006.28")
    files = machine.files("download", target, f"/var/lib/{machine.name}-altered")
    content = machine.path(files[0]).read_bytes()
    machine.path(files[0]).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for method in ("verify", "install"):
        with pytest.raises(Refused, match=r"has changed: SHA-256 .* Nothing was inst") as caught:
            machine(method, files)
        assert caught.value.kind == "VerificationError"
    machine.path(files[0]).write_bytes(content)
    machine("verify", files)
    with pytest.raises(Refused, match=r"is salt.* not salt.* 3-1"):
        machine("verify", [files[0]._replace(version="3-1")])
    _clean(machine, "3007.15")


def test_a_file_that_was_altered_in_the_repository_is_refused(
    container: Container, machine: Managed
) -> None:
    name = f"swapped-{machine.name}"
    _plain(container, name, "1")
    _offer(container)
    machine("refresh")
    file = container.path(f"{REPOSITORY}/{name}-1-1.noarch.rpm")
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(Refused) as caught:
        machine.files("download", {name: "1-1"}, f"/var/lib/{name}")
    assert caught.value.kind == "CommandError"
    assert machine.run("ls", "-A", f"/var/lib/{name}").stdout == ""
    machine.run("rm", str(f"{REPOSITORY}/{name}-1-1.noarch.rpm"))


def test_a_package_without_signature_is_refused(container: Container, machine: Managed) -> None:
    """... unless the administrator has said so, which is told."""
    assert machine("signature_policy") is None
    name = f"unsigned-{machine.name}"
    _plain(container, name, "1")
    _offer(container, sign=False)
    machine("refresh")
    assert machine("candidates", [name]) == {name: ["1-1"]}
    with pytest.raises(Refused, match=r"not signed|unsigned|GPG") as caught:
        machine.files("download", {name: "1-1"}, f"/var/lib/{name}")
    assert caught.value.kind == "CommandError"
    assert machine.run("ls", "-A", f"/var/lib/{name}").stdout == ""
    assert machine("installed", [name]) == {}
    container.write(REPO_FILES[machine.name], REPO.format(check=0))
    assert "repository lab in" in machine("signature_policy")
    assert versions(machine.files("download", {name: "1-1"}, f"/var/lib/{name}")) == {name: "1-1"}


def test_what_another_package_needs_is_not_taken_away(
    container: Container, machine: Managed
) -> None:
    user = f"user-{machine.name}"
    _plain(container, user, "1", "Requires: salt-minion = 3007.15")
    machine.run("rpm", "--install", f"{REPOSITORY}/{user}-1-1.noarch.rpm")
    target = machine("targets", OWN, "3006.28")
    with pytest.raises(Refused, match=user):
        machine.files("download", target, f"/var/lib/{user}")
    _clean(machine, "3007.15")
    machine.run("rpm", "--erase", user)


def test_without_the_repository_there_is_no_copy(container: Container, machine: Managed) -> None:
    """rpm packages cannot be made again, so that is said before anything changes."""
    _salt(container, "3007.16", release="5")
    files = [f"{REPOSITORY}/{name}-3007.16-5.noarch.rpm" for name in OWN]
    machine.run("rpm", "--upgrade", *files)
    cache = {"dnf": "/var/cache/dnf/lab/packages", "zypper": "/var/cache/zypp/packages/lab"}
    machine.run("mkdir", "-p", cache[machine.name])
    machine.run("mv", *files, cache[machine.name])
    old = machine.files("secure", OWN, f"/var/lib/{machine.name}-cached")
    assert versions(old) == dict.fromkeys(OWN, "3007.16-5")
    machine("verify", old)
    machine.run("truncate", "--size=-20", f"{cache[machine.name]}/salt-3007.16-5.noarch.rpm")
    with pytest.raises(Refused, match=r"no copy of salt 3007\.16-5 can be had") as caught:
        machine.files("secure", OWN, f"/var/lib/{machine.name}-none")
    assert caught.value.kind == "SafeUpdateError"
    with pytest.raises(Refused, match="is not installed"):
        machine("secure", ["no-such-package"], "/var/lib")
    machine.run("rm", "-r", cache[machine.name])


@ONE_FRONT_END
@pytest.mark.parametrize("fix", ["repair", pytest.param("install", marks=pytest.mark.soak), "back"])
def test_rpm_is_killed_in_a_scriptlet(container: Container, machine: Managed, fix: str) -> None:
    new = machine.files("download", machine("targets", OWN, "3006.28"), "/var/lib/new")
    old = machine.files("secure", OWN, "/var/lib/old")
    container.write("/run/block-post", "")
    kill_and_fix(
        machine,
        fix,
        OWN,
        new=new,
        old=old,
        programs="rpm",
        moment=lambda: "post 3006.28" in container.read("/var/tmp/scripts"),
        unfinished=["salt-minion"],
        blocked=("/run/block-post", "rpm-tmp"),
    )
    _clean(machine, "3007.15" if fix == "back" else "3006.28")


@ONE_FRONT_END
@pytest.mark.parametrize("fix", [pytest.param("install", marks=pytest.mark.soak), "back"])
def test_rpm_is_killed_while_it_unpacks(container: Container, machine: Managed, fix: str) -> None:
    """rpm's database does not know of it yet: only the files tell."""
    names = ("salt-big", "salt-minion-big")
    for version in ("1", "2"):
        if not container.exists(f"{REPOSITORY}/salt-big-{version}-1.noarch.rpm"):
            _salt(container, version, flavour="-big", files=4000)
            _offer(container)
    machine("refresh")
    machine.run(
        "rpm",
        "--upgrade",
        "--oldpackage",
        "--replacepkgs",
        *(f"{REPOSITORY}/{name}-1-1.noarch.rpm" for name in names),
    )
    old = machine.files("secure", names, "/var/lib/big-old")
    new = machine.files("download", machine("targets", names, "2"), "/var/lib/big-new")
    folder = container.path("/opt/salt-big/lib")
    before = {entry.name: entry.inode() for entry in os.scandir(folder)}
    kill_and_fix(
        machine,
        fix,
        names,
        new=new,
        old=old,
        programs="rpm",
        moment=lambda: any(before.get(e.name) != e.inode() for e in os.scandir(folder)),
    )
    _clean(machine, "1" if fix == "back" else "2", names)
    assert {entry.name for entry in os.scandir(folder)} == set(before)
    machine.run("rpm", "--erase", *names)


@pytest.mark.parametrize("machine", ["zypper"], indirect=True)
def test_an_upgrade_of_everything_can_leave_the_minion_alone(
    container: Container, machine: Managed
) -> None:
    """As Salt's module calls it, in the environment that only this process has."""
    # One that belongs to a version of the minion, and one that has nothing to do with it.
    others = ("beside", "editor")
    for version, minion in (("1", "3007.15"), ("2", "3008.3")):
        _plain(container, "beside", version, f"Requires: salt-minion = {minion}")
        _plain(container, "editor", version)
    old = [f"{REPOSITORY}/{name}-1-1.noarch.rpm" for name in others]
    machine.run("rpm", "--install", *old)
    # Repositories often have the newest only.
    machine.run("rm", *old)
    _offer(container)
    machine("refresh")
    # What belongs to another version of the minion is in the way of a whole distribution.
    ways = {"update": OWN, "dist-upgrade": (*OWN, "beside")}
    for word, names in ways.items():
        container.run(["mkdir", "-p", f"/var/tmp/{word}"])
        env = machine("without", names, f"/var/tmp/{word}")
        argv = ["zypper", "--non-interactive", word, "--dry-run"]
        plain = container.run(argv).stdout
        assert {"salt-minion", "beside", "editor"} <= _upgraded(plain), plain
        kept = container.run(argv, env=env).stdout
        assert _upgraded(kept) == {"editor"}, kept
    # That is how it is found.
    pulls = container.run(["zypper", "--non-interactive", "update", "--dry-run", "beside"]).stdout
    assert "salt-minion" in _upgraded(pulls), pulls
    assert machine("version_locked", OWN) == []
    machine.run("rpm", "--erase", *others)


def _upgraded(told: str) -> set[str]:
    """Return the packages that zypper says it would upgrade."""
    return set(told.partition("going to be upgraded:")[2].partition("\n\n")[0].split())
