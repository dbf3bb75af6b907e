"""The event bus of a master that does not run."""

import contextlib
import socket


@contextlib.contextmanager
def unread_bus(root):
    """
    Yield a ``sock_dir`` for the ``root_dir`` *root*: Salt can fire events, and nobody reads them.

    Where nothing listens, Salt tries again and again for a second, which takes a processor.
    """
    # It is relative to the other one: Salt takes another place if this is much longer than others.
    (root / "sock").mkdir()
    with socket.socket(socket.AF_UNIX) as bus:
        bus.bind(str(root / "sock" / "master_event_pull.ipc"))
        bus.listen()
        yield "/sock"
