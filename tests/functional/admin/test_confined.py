"""
What the interpreter of a build gains when root looks at the build with it: nothing.

| It tries to | Confined | Without the right to namespaces |
| --- | --- | --- |
| write next to root's files, into its own tree | no | no |
| read what only root may read | no | no |
| end another process | no | no |
| fill the disk or the memory, or fork on | up to the limits | up to the limits |
| leave a process or a file behind | no | no process |
| reach a listener of this host, by an address or a path | no | no |
| read what is in root's session keyring | no | no |
| know a password in the environment, as of a proxy | no | no |
| have another process ended if the memory runs short | no | no |
| have root write elsewhere by lies about itself | no | no |
"""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile

import pytest

from saltext_safeupdate.core.errors import CommandError, SafeUpdateError
from saltext_safeupdate.core.extensions import interpreter
from saltext_safeupdate.core.host.command import run
from saltext_safeupdate.core.slots import byte_code, private
from saltext_safeupdate.core.slots.confined import confined
from saltext_safeupdate.core.slots.furnish import furnish
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="slots are made by root")

# An interpreter that every user can start, as that of a build.
PYTHON = "/usr/bin/python3"
ATTACK = """\
import ctypes, json, os, signal, socket, sys, tempfile, time
aim, tree, port, victim = {aim!r}, {tree!r}, {port}, {victim}
def unix():
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(aim + "/socket")
def key_of_root():
    libc, found = ctypes.CDLL(None), ctypes.create_string_buffer(8)
    number = libc.syscall(250, 10, -3, b"user", b"safeupdate-test", 0)
    if libc.syscall(250, 11, number, found, 8) < 1:
        raise OSError
def spared():
    with open("/proc/self/oom_score_adj") as file:
        if int(file.read()) == 1000:
            raise OSError
def write(path):
    with open(path, "a") as file:
        file.write("evil")
def huge():
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        file.truncate(1 << 30)
def stay():
    for _ in range(3):
        if not os.fork():
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            for fd in (0, 1, 2):
                os.close(fd)
            time.sleep(600)
def forks():
    # They wait for the end of the pipe, and so for this process.
    read, end = os.pipe()
    for _ in range(200):
        if not os.fork():
            os.close(end)
            os.read(read, 1)
            os._exit(0)
TRIES = dict(
    write=lambda: write(aim + "/evil"),
    change=lambda: write(aim + "/known"),
    tree=lambda: write(tree + "/evil"),
    key=lambda: open(aim + "/key").read(),
    shadow=lambda: open("/etc/shadow").read(),
    end=lambda: os.kill(victim, signal.SIGTERM),
    become=lambda: os.setuid(0),
    memory=lambda: bytearray(8 << 30),
    huge=huge,
    net=lambda: socket.create_connection(("127.0.0.1", port), 5),
    unix=unix,
    keyring=key_of_root,
    spared=spared,
    proxy=lambda: os.stat(os.environ.get("https_proxy", "/none")),
    tmp=lambda: write("/var/tmp/safeupdate-evil"),
    forks=forks,
    stay=stay,
)
gained = []
for name in {tries!r}:
    try:
        TRIES[name]()
    except (OSError, MemoryError):
        continue
    gained.append(name)
print(json.dumps(gained), flush=True)
os._exit(0)
"""
TRIES = (
    "write",
    "change",
    "tree",
    "key",
    "shadow",
    "end",
    "become",
    "memory",
    "huge",
    "net",
    "unix",
    "keyring",
    "spared",
    "proxy",
    "tmp",
)
# The number of add_key(2), and what stands for the keyring of the session.
_ADD_KEY, _SESSION = 248, -3


def _uses(code):
    """Have the interpreter run this at its start."""
    return f'import sys\nif "-I" in sys.orig_argv:\n    exec({code!r})\n'


class Build:
    """The tree of a build while a slot is made, and what is not its business."""

    def __init__(self, path):
        self.tree, self.aim = path / "part" / "tree", path / "aim"
        self.tree.parent.mkdir(mode=0o711)
        run((PYTHON, "-m", "venv", "--without-pip", self.tree), timeout=60)
        self.python = str(self.tree / "bin" / "python3")
        (self.tree / "bin" / "salt-minion").write_text(f"#!{self.python}\n")
        (self.place,) = self.tree.glob("lib/python3*/site-packages")
        salt = self.place / "salt"
        salt.mkdir()
        (salt / "__init__.py").write_text("x = 1\n")
        self.aim.mkdir(mode=0o755)
        (self.aim / "known").write_text("known")
        (self.aim / "key").write_text("key")
        (self.aim / "key").chmod(0o600)
        ctypes.CDLL(None).syscall(_ADD_KEY, b"user", b"safeupdate-test", b"key", 3, _SESSION)
        self.home = self.aim / "home" / "saltext_safeupdate"
        self.home.mkdir(parents=True)
        (self.home / "__init__.py").write_text("")
        private.let_all_read(str(self.tree))

    def lies(self, code):
        # With '-I', too: it is the build's own directory.
        (self.place / "lies.pth").write_text("import lies\n")
        (self.place / "lies.py").write_text(_uses(code))
        private.let_all_read(str(self.tree))

    def content(self):
        return {
            path: path.lstat().st_mtime_ns for path in self.aim.rglob("*") if path.name != "socket"
        }


@pytest.fixture
def build():
    # Directories of pytest are closed to others.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chmod(place, 0o755)
        yield Build(pathlib.Path(place))


def _in_container(argv, **words):
    """Run a program as root of a container that may not make namespaces."""
    sets = ("--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    return run(("setpriv", *sets, *argv), **words)


LOOKS = {"confined": confined(run), "in a container": confined(_in_container)}


@pytest.fixture(params=LOOKS)
def look(request):
    return LOOKS[request.param]


@pytest.fixture
def victim(monkeypatch):
    monkeypatch.setenv("https_proxy", "/")
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def attempts(build, victim, tries, look):
    """Return what the interpreter of the build gains."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(str(build.aim / "socket"), family=socket.AF_UNIX),
    ):
        (build.aim / "socket").chmod(0o777)
        port = listener.getsockname()[1]
        words = {"aim": str(build.aim), "tree": str(build.tree), "port": port}
        build.lies(ATTACK.format(**words, victim=victim.pid, tries=tries))
        return json.loads(look((build.python, "-I", "-c", ""), timeout=120).stdout)


def strangers():
    """Return the processes of users that nobody is."""
    users = {}
    for each in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError):
            users[each] = os.stat(f"/proc/{each}").st_uid
    return [each for each, user in users.items() if 60706 <= user <= 61183]


def test_the_interpreter_of_a_build_gains_nothing(build, victim, look, request):
    before = build.content()
    gained = attempts(build, victim, TRIES, look)
    in_container = request.node.callspec.params["look"] == "in a container"
    path = pathlib.Path("/var/tmp/safeupdate-evil")
    path.unlink(missing_ok=True)
    assert gained == (["tmp"] if in_container else [])
    assert build.content() == before
    assert victim.poll() is None
    assert not (build.tree / "evil").exists()


def test_as_root_it_would_gain_all_of_that(build, victim):
    """The attacks are real."""
    tries = ["write", "change", "tree", "key", "end", "net", "unix", "keyring", "spared", "proxy"]
    assert attempts(build, victim, tries, run) == tries
    assert victim.wait(30) == -signal.SIGTERM


@pytest.mark.parametrize("tries", ["stay", "forks"])
def test_no_process_of_it_is_left(build, victim, look, tries):
    assert attempts(build, victim, (tries,), look) == (["stay"] if tries == "stay" else [])
    wait_for(lambda: strangers() == [], "every process to be gone")


def test_one_that_does_not_end_is_ended_with_all_that_it_began(build, look):
    build.lies(
        "import os, signal, time\nos.fork()\nos.setsid() if os.getpid() != os.getpgrp() else 0\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    )
    with pytest.raises(CommandError, match="did not end within 2 s"):
        look((build.python, "-I", "-c", ""), timeout=2)
    wait_for(lambda: strangers() == [], "every process to be gone")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_one_that_prints_without_end_is_cut_off(build, look, stream):
    build.lies(f"import sys\nwhile True:\n    print('x' * 65535, file=sys.{stream})")
    result = look((build.python, "-I", "-c", ""), timeout=120, ok=None)
    assert len(getattr(result, stream)) <= 64 << 20


PLACES = {"python": [3, 11], "paths": [], "names": [], "purelib": "/lib"}
LIES = {
    "elsewhere": {"purelib": "{}"},
    "up and down": {"purelib": "{tree}/../../aim"},
    "relative": {"purelib": "aim"},
    "a number": {"purelib": 1},
    "a version that is a path": {"python": [3, "x/../../../aim"], "purelib": "{tree}/lib"},
    "nothing": None,
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("lie", LIES)
def test_root_writes_nothing_where_it_says(build, look, lie):
    told = LIES[lie]
    if not isinstance(told, str):
        told = json.dumps(told and {**PLACES, **told})
    told = told.replace("{}", str(build.aim)).replace("{tree}", str(build.tree))
    build.lies(
        "import os\nwords = sys.orig_argv\n"
        f"if 'sysconfig' in words[3]:\n    print({told!r}, flush=True)\n    os._exit(0)\n"
        "os._exit(1)"
    )
    before = build.content()
    with pytest.raises(SafeUpdateError, match="Nothing was changed"):
        furnish(str(build.tree), str(build.home), str(build.aim / "none"), look)
    assert build.content() == before


def test_its_byte_code_is_written_next_to_its_sources_only(build, look):
    (build.aim / "root.py").write_text("x = 1")
    (build.place / "salt" / "away").symlink_to(build.aim)
    # Whoever may write there could have it lead elsewhere when it was looked at.
    (build.aim / "way").symlink_to(build.place / "salt")
    (build.place / "salt" / "other.py").write_text("x = 1")
    paths = [
        build.aim / "root.py",
        build.place / "salt" / "away" / "root.py",
        build.place / ".." / ".." / ".." / ".." / ".." / "aim" / "root.py",
        build.aim / "way" / "other.py",
        build.place / "salt" / "none.py",
        build.place / "salt" / "__init__.py",
    ]
    lines = "".join(f"cpython-311 eA== {path}\n" for path in paths)
    build.lies(f"import os\nprint({lines!r}, flush=True)\nos._exit(0)")
    before = build.content()
    byte_code.write(str(build.tree), look)
    assert build.content() == before
    written = [path.read_bytes() for path in build.tree.rglob("*.pyc") if "salt" in str(path)]
    assert written == [b"x"]


def test_byte_code_that_is_printed_is_used(build, look):
    byte_code.write(str(build.tree), look)
    (cached,) = (build.place / "salt" / "__pycache__").glob("__init__.*.pyc")
    before = cached.stat().st_mtime_ns
    loads = "import salt; print(salt.__cached__)"
    assert run((build.python, "-I", "-c", loads), timeout=60).stdout.strip() == str(cached)
    assert cached.stat().st_mtime_ns == before, "it was good where it lies"


def test_modules_that_ask_for_their_user_can_be_imported(build, look):
    """Salt does when its configuration is loaded, and so do extensions that import that."""
    (build.place / "asking.py").write_text(
        "import os, pathlib, pwd\npwd.getpwuid(os.getuid()).pw_name\n"
        "(pathlib.Path.home() / 'x').exists()\n"
        "try:\n    pwd.getpwuid(61183 if os.getuid() != 61183 else 61182)\n"
        "except KeyError:\n    pass\nelse:\n    raise SystemExit\n"
    )
    private.let_all_read(str(build.tree))
    assert interpreter.importable(build.python, look, ["asking"]) == (["asking"], [])


def test_this_extension_is_put_into_the_tree(build, look):
    info = build.home.parent / "saltext_safeupdate-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: saltext.safeupdate\nVersion: 1\n")
    point = "[salt.loader]\nsaltext_safeupdate = saltext_safeupdate\n"
    (info / "entry_points.txt").write_text(point)
    furnish(str(build.tree), str(build.home), str(build.aim / "none"), look)
    assert (build.place / "saltext_safeupdate" / "__init__.py").is_file()


def test_who_may_not_give_up_rights_says_so(build):
    """Such as root of a container without the right to be somebody else."""

    def without(argv, **words):
        return run(("setpriv", "--bounding-set", "-setuid", *argv), **words)

    with pytest.raises(CommandError, match="cannot be run without rights"):
        confined(without)((build.python, "-I", "-c", ""), timeout=60)
