"""A second process for tests of what the kernel does between processes."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback


class Forked:
    """Runs ``work(hear, say)`` in a child; both sides talk in lines."""

    def __init__(self, work):
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self._write)
                os.close(self._read)
                work(lambda: _line(to_child), lambda text: _say(from_child, text))
                code = 0
            finally:
                if code:
                    traceback.print_exc()
                os._exit(code)
        os.close(to_child)
        os.close(from_child)
        self._code = None

    def hear(self):
        """Return the next line of the child; empty when it has ended."""
        return _line(self._read)

    def say(self, text="go"):
        _say(self._write, text)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self):
        if self._code is None:
            _, status = os.waitpid(self.pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
            os.close(self._read)
            os.close(self._write)
        return self._code


@contextlib.contextmanager
def forked(work):
    child = Forked(work)
    try:
        yield child
    finally:
        if child._code is None:
            child.kill()


def _say(fd, text):
    os.write(fd, f"{text}\n".encode())


def _line(fd):
    text = b""
    while not text.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            break
        text += byte
    return text.decode().strip()
