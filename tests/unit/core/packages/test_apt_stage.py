"""How apt and dpkg are asked to stage and install; what they do then is tested in the lab."""

import os

import pytest

from saltext_safeupdate.core.errors import (
    CommandError,
    InputError,
    SafeUpdateError,
    VerificationError,
)
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.packages import apt_output
from saltext_safeupdate.core.packages.apt import Apt
from saltext_safeupdate.core.packages.files import digest
from saltext_safeupdate.core.packages.request import File

MADISON = """\
salt-minion |     3008.3 | https://packages.example.invalid stable/main amd64 Packages
salt-minion |     3008.3 | https://mirror.example.invalid stable/main amd64 Packages
salt-minion |  1:3007.15-2 | https://packages.example.invalid stable/main amd64 Packages
salt-common |     3008.3 | https://packages.example.invalid stable/main amd64 Packages
salt-minion |     3006.28 | https://packages.example.invalid stable/main Sources
"""
POLICY = """\
salt-minion:
  Installed: 3007.15
  Candidate: 3008.3
  Version table:
     3008.3 500
        500 https://packages.example.invalid stable/main amd64 Packages
 *** 3007.15 100
        100 /var/lib/dpkg/status
salt-api:
  Installed: (none)
  Candidate: (none)
  Version table:
"""


class FakeDebian:
    """apt and dpkg with one package, whose files hold ``name version``."""

    def __init__(self, installed="1", status="ii ", offered=("2",), removes=()):
        self.installed, self.status = installed, status
        self.offered, self.removes = offered, removes
        self.calls, self.envs, self.selected, self.fails = [], [], [], set()

    def __call__(self, argv, *, timeout, ok=(0,), env=None, stdin=None, keep=None):
        argv = tuple(argv)
        self.calls.append(argv)
        self.envs.append(env)
        code, out = self.answer(argv, stdin)
        if ok is not None and code not in ok:
            raise CommandError(argv, f"exit status {code}", returncode=code)
        return Result(argv=argv, returncode=code, stdout=out, stderr="")

    def answer(self, argv, stdin):
        if self.fails and self.fails <= set(argv):
            self.status = "iF "
            return 100, ""
        if argv[0] == "dpkg-query":
            version = f"{self.installed}\t" if "Version" in argv[3] else ""
            return 0, f"agent\t{version}{self.status}\n" if self.installed else ""
        if argv[0] == "apt-get" and "--simulate" in argv:
            removed = "".join(f"Remv {name} [1]\n" for name in self.removes)
            return 0, f"Inst agent [1] (2 repository [all])\n{removed}"
        if "download" in argv:
            directory = argv[1].removeprefix("--chdir=")
            for word in argv[argv.index("--") + 1 :]:
                name, _, version = word.partition("=")
                if version in self.offered:
                    path = f"{directory}/{name}_{version.replace(':', '%3a')}_all.deb"
                    with open(path, "w") as file:
                        file.write(f"{name}\t{version}")
            return 0, ""
        if argv[:2] == ("dpkg-deb", "--show"):
            with open(argv[-1]) as file:
                return 0, file.read()
        if argv[:2] == ("dpkg", "--set-selections"):
            self.selected.append(stdin)
        elif argv[0] == "dpkg":
            self.installed, self.status = "2", "ii "
        return 0, ""

    def ran(self, program):
        return [argv for argv in self.calls if argv[0] == program]


def _staged(tmp_path, name="agent", version="2"):
    path = tmp_path / f"{name}_{version}_all.deb"
    path.write_text(f"{name}\t{version}")
    return File(name, version, str(path), digest(str(path)))


def test_versions_on_offer_newest_first_and_once():
    assert apt_output.parse_madison(MADISON) == {
        "salt-minion": ["3008.3", "1:3007.15-2"],
        "salt-common": ["3008.3"],
    }


def test_what_apt_would_choose():
    assert apt_output.parse_policy(POLICY) == {"salt-minion": "3008.3"}


def test_sizes_are_told_in_bytes_and_in_kib():
    text = "Package: a\nSize: 100\nInstalled-Size: 2\nSize-Of: 7\n\nPackage: b\nSize: 1\n"
    assert apt_output.parse_sizes(text) == 100 + 2048 + 1


def test_the_newest_is_what_the_pins_allow():
    names = ("salt-api", "salt-minion")

    def run(argv, **kwargs):
        out = MADISON if argv[1] == "madison" else POLICY
        assert argv[2:] == ("--", *names)
        return Result(argv=argv, returncode=0, stdout=out, stderr="")

    with pytest.raises(InputError, match=r"salt-api: apt would install no version of it; on off"):
        Apt(run).targets(names, None)


def test_what_is_downloaded_is_moved_to_its_place_when_it_is_whole(tmp_path):
    run = FakeDebian()
    (file,) = Apt(run).download({"agent": "2"}, str(tmp_path))
    assert file == File("agent", "2", str(tmp_path / "agent_2_all.deb"), digest(file.path))
    assert os.listdir(tmp_path) == ["agent_2_all.deb"]


def test_something_else_than_what_was_asked_for(tmp_path):
    with pytest.raises(VerificationError, match=r"something else than agent 2\. Nothing was ch"):
        Apt(FakeDebian(offered=())).download({"agent": "2"}, str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_disk_that_takes_nothing_is_told_as_what_it_is(tmp_path):
    for method, what in (("download", {"agent": "2"}), ("secure", ["agent"])):
        with pytest.raises(SafeUpdateError, match=r"cannot be put into .*/none: No such file"):
            getattr(Apt(FakeDebian()), method)(what, str(tmp_path / "none"))


def test_an_update_that_would_remove_a_package_is_not_downloaded(tmp_path):
    run = FakeDebian(removes=("user-b", "user-a"))
    with pytest.raises(SafeUpdateError, match=r"would remove user-a, user-b\. Nothing"):
        Apt(run).download({"agent": "2"}, str(tmp_path))
    assert not any("download" in argv for argv in run.calls)


@pytest.mark.parametrize(
    ("installed", "status", "installs"),
    [
        ("1", "ii ", True),
        ("2", "ii ", False),
        ("2", "hi ", False),
        ("2", "iF ", True),
        ("", "", True),
    ],
)
def test_what_is_installed_is_not_installed_again(tmp_path, installed, status, installs):
    run = FakeDebian(installed, status)
    file = _staged(tmp_path)
    Apt(run).install([file])
    command = ("dpkg", "--force-confold", "--auto-deconfigure", "--install", "--", file.path)
    pending = ("dpkg", "--force-confold", "--triggers-only", "--pending")
    after = [pending] if status == "iF " else []
    assert run.ran("dpkg") == ([command, *after] if installs else [])
    if installs:
        assert run.envs[run.calls.index(command)] == {"DEBIAN_FRONTEND": "noninteractive"}


def test_only_what_is_not_so_yet_is_held_or_released():
    run = FakeDebian(status="hi ")
    manager = Apt(run)
    assert manager.version_locked(["agent"]) == {"agent"}
    manager.lock_versions(["agent"], True)
    assert run.selected == []
    manager.lock_versions(["agent"], False)
    assert run.selected == ["agent install\n"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_hold_is_put_back_also_after_a_failure(tmp_path, fails):
    run = FakeDebian(status="hi ")
    if fails:
        run.fails.add("--install")
        with pytest.raises(CommandError):
            Apt(run).install([_staged(tmp_path)])
    else:
        Apt(run).install([_staged(tmp_path)])
    assert run.selected == ["agent hold\n"]


def test_a_file_that_has_changed_is_not_given_to_dpkg(tmp_path):
    run = FakeDebian()
    with pytest.raises(VerificationError):
        Apt(run).install([_staged(tmp_path)._replace(sha256="0" * 64)])
    assert run.ran("dpkg") == []


def test_a_copy_of_what_is_installed_comes_from_the_cache_first(tmp_path):
    archives, directory = tmp_path / "archives", tmp_path / "copies"
    archives.mkdir()
    directory.mkdir()
    (archives / "agent_1%3a2-1_all.deb").write_text("agent\t1:2-1")
    run = FakeDebian(installed="1:2-1")
    manager = Apt(run, archives=str(archives))
    (file,) = manager.secure(["agent"], str(directory))
    assert file.path == str(directory / "agent_1%3a2-1_all.deb")
    assert not any("download" in argv for argv in run.calls)
    # Another version has the name of this one: it is not what is installed.
    (archives / "agent_1%3a2-1_all.deb").write_text("agent\t1:1-1")
    run.offered = ("1:2-1",)
    (file,) = manager.secure(["agent"], str(directory))
    assert any("download" in argv for argv in run.calls)
    assert os.listdir(directory) == [os.path.basename(file.path)]


def test_no_copy_of_what_is_not_installed(tmp_path):
    with pytest.raises(SafeUpdateError, match="agent is not installed"):
        Apt(FakeDebian(installed="")).secure(["agent"], str(tmp_path))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.list", "deb https://x.invalid stable main\n", None),
        ("a.list", "deb [arch=amd64 trusted=yes] https://x.invalid ./\n", "trusted=yes in"),
        ("a.list", "deb [ Trusted = YES ] https://x.invalid ./\n", "trusted=yes in"),
        ("a.list", "# deb [trusted=yes] https://x.invalid ./\n", None),
        ("a.list", "deb [trusted=no] https://x.invalid ./\n", None),
        ("a.sources", "Types: deb\nTrusted: yes\n", "trusted=yes in"),
        ("a.sources", "Types: deb\nSuites: stable\n", None),
        ("a.list.off", "deb [trusted=yes] https://x.invalid ./\n", None),
    ],
)
def test_repositories_that_are_trusted_without_a_signature(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    sources = (str(tmp_path / "sources.list"), str(tmp_path))
    answer = Apt(FakeDebian(), sources=sources).signature_policy()
    assert (said in answer and name in answer) if said else answer is None


@pytest.mark.parametrize(
    ("dump", "said"),
    [
        ('APT::Get::AllowUnauthenticated "1";\n', "APT::Get::AllowUnauthenticated"),
        ('Acquire::AllowInsecureRepositories "true";\n', "Acquire::AllowInsecureRepositories"),
        ('APT::Get::AllowUnauthenticated "false";\nAcquire::AllowInsecureRepositories "0";\n', ""),
    ],
)
def test_settings_that_let_anything_in(tmp_path, dump, said):
    def run(argv, **kwargs):
        return Result(argv=argv, returncode=0, stdout=dump, stderr="")

    sources = (str(tmp_path / "none"), str(tmp_path))
    answer = Apt(run, sources=sources).signature_policy()
    assert said in answer if said else answer is None
