"""What was written to the disk for good."""

import contextlib
import os


@contextlib.contextmanager
def synced():
    """Yield the paths of which the disk was told to write all, each with its size just then."""
    told, fsync = {}, os.fsync

    def tell(fd):
        fsync(fd)
        told[os.readlink(f"/proc/self/fd/{fd}")] = os.fstat(fd).st_size

    os.fsync = tell
    try:
        yield told
    finally:
        os.fsync = fsync
