"""The event sockets of each generation of the minion."""

import os
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.minion import own_bus
from tests.support.forked import forked
from tests.support.succession import bind, paths, short_directory


@pytest.fixture
def sock_dir():
    with short_directory() as made:
        yield Path(made)


@pytest.fixture
def opts(sock_dir):
    return {"id": "m1", "hash_type": "sha256", "sock_dir": str(sock_dir)}


class Server:
    """Listens at each of the sockets; the next one takes their names."""

    def __init__(self, opts):
        self.sockets = []
        for path in paths(opts):
            Path(path).unlink(missing_ok=True)
            made = socket.socket(socket.AF_UNIX)
            made.bind(path)
            made.listen(5)
            made.setblocking(False)
            self.sockets.append(made)

    def close(self):
        for each in self.sockets:
            each.close()

    def heard(self):
        """Tell of each socket whether somebody has connected to it."""
        return [_accepts(each) for each in self.sockets]


def _accepts(listening):
    try:
        listening.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def connect(opts):
    """Connect to the sockets that Salt uses with these opts."""
    for path in paths(opts):
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(path)


def test_who_uses_the_links_gets_to_the_minion_that_made_them(opts):
    earlier = Server(opts)
    place = own_bus.link(opts)
    later = Server(opts)
    ours = dict(opts)
    own_bus.use(ours, place)
    connect(ours)
    assert (earlier.heard(), later.heard()) == ([True, True], [False, False])
    connect(opts)
    assert (earlier.heard(), later.heard()) == ([False, False], [True, True])
    earlier.close()
    later.close()


@pytest.mark.parametrize(
    "more", [{}, {"id": "another"}, {"hash_type": "md5"}, {"hash_id": "of the proxy"}]
)
def test_the_sockets_are_those_of_salt(opts, more):
    opts |= more
    bind(opts)
    place = own_bus.link(opts)
    used = paths({**opts, "sock_dir": place})
    assert sorted(os.listdir(place)) == sorted(map(os.path.basename, used))
    assert all(map(os.path.exists, used))


def test_the_directory_is_this_processs_own_and_for_its_user_only(opts, sock_dir):
    bind(opts)
    place = own_bus.link(opts)
    assert os.path.dirname(place) == str(sock_dir)
    pid = os.getpid()
    assert os.path.basename(place) == f"generation-{pid}-{processes.start_time(pid)}"
    assert os.stat(place).st_mode & 0o777 == 0o700


def test_links_that_were_left_under_its_name_are_made_anew(opts):
    bind(opts)
    own_bus.link(opts)
    bind(opts)
    place = own_bus.link(opts)
    for path in paths(opts):
        assert os.path.samefile(path, os.path.join(place, os.path.basename(path)))


def test_directories_of_minions_that_are_gone_are_removed(opts, sock_dir):
    bind(opts)
    living = f"generation-1-{processes.start_time(1)}"
    others = [living, "generation-x-5", "generation", "1-0", "x-generation-1-0"]
    gone = ["generation-1-0", "generation-4000001-7", "generation-1-"]
    for name in (*others, *gone):
        (sock_dir / name).mkdir()
        (sock_dir / name / "file").touch()
    place = own_bus.link(opts)
    sockets = [os.path.basename(path) for path in paths(opts)]
    left = [*others, *sockets, os.path.basename(place)]
    assert sorted(os.listdir(sock_dir)) == sorted(left)
    assert all((sock_dir / name / "file").exists() for name in others)


@pytest.mark.parametrize("missing", [0, 1])
def test_without_the_sockets_there_is_nothing_to_link(opts, missing):
    bind(opts)
    os.unlink(paths(opts)[missing])
    with pytest.raises(SafeUpdateError, match="cannot be linked"):
        own_bus.link(opts)


def test_without_their_directory_there_is_nothing_to_link(opts):
    opts["sock_dir"] += "/gone"
    with pytest.raises(SafeUpdateError, match="cannot be linked"):
        own_bus.link(opts)


def test_a_path_that_no_socket_may_have_is_refused(opts, sock_dir):
    """One that would just fit without the directory of the generation."""
    place = sock_dir / ("x" * (100 - len(f"{sock_dir}//minion_event_0123456789_pull.ipc")))
    place.mkdir()
    opts["sock_dir"] = str(place)
    Server(opts).close()
    with pytest.raises(SafeUpdateError, match="too long"):
        own_bus.link(opts)


def test_the_longest_path_that_a_socket_may_have_will_do(opts, sock_dir):
    pid = os.getpid()
    more = f"//generation-{pid}-{processes.start_time(pid)}/minion_event_0123456789_pull.ipc"
    place = sock_dir / ("x" * (107 - len(f"{sock_dir}{more}")))
    place.mkdir()
    opts["sock_dir"] = str(place)
    earlier = Server(opts)
    own_bus.use(opts, own_bus.link(opts))
    assert {len(path) for path in paths(opts)} == {106, 107}
    connect(opts)
    earlier.close()


def test_one_byte_more_is_too_long(opts, sock_dir):
    pid = os.getpid()
    more = f"//generation-{pid}-{processes.start_time(pid)}/minion_event_0123456789_pull.ipc"
    place = sock_dir / ("x" * (108 - len(f"{sock_dir}{more}")))
    place.mkdir()
    opts["sock_dir"] = str(place)
    bind(opts)
    with pytest.raises(SafeUpdateError, match="too long"):
        own_bus.link(opts)


def test_who_listens_is_told_by_the_kernel(opts):
    earlier = Server(opts)
    assert own_bus.listener(opts) == os.getpid()
    place = own_bus.link(opts)

    def other(hear, say):
        later = Server(opts)
        say("bound")
        hear()
        later.close()

    with forked(other) as later:
        assert later.hear() == "bound"
        assert own_bus.listener(opts) == later.pid
        assert own_bus.listener({**opts, "sock_dir": place}) == os.getpid()
        later.kill()
    assert own_bus.listener(opts) == 0, "it has died, and its sockets are there"
    earlier.close()


def test_without_sockets_nobody_listens(opts):
    assert own_bus.listener(opts) == 0
    Server(opts).close()
    assert own_bus.listener(opts) == 0


def test_one_that_is_too_busy_to_say_so_listens(opts):
    server, waiting = Server(opts), []
    with ExitStack() as stack:
        while own_bus.listener(opts) == os.getpid():
            each = stack.enter_context(socket.socket(socket.AF_UNIX))
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect(paths(opts)[1])
            waiting.append(each)
            assert len(waiting) < 100_000
        assert own_bus.listener(opts) == -1
    server.close()


def test_without_a_directory_nothing_is_changed(opts, sock_dir):
    before = dict(opts)
    own_bus.use(opts, "")
    assert opts == before
    own_bus.unlink("")
    assert sock_dir.exists()


def test_what_was_linked_is_removed(opts, sock_dir):
    bind(opts)
    place = own_bus.link(opts)
    own_bus.unlink(place)
    own_bus.unlink(place)
    assert not os.path.exists(place)
    assert all(map(os.path.exists, paths(opts)))
