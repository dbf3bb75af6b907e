"""Root's call of Salt in a process that has become the user of the master, as ``salt-run`` does."""

import ctypes
import os
import pickle
import pwd

from devtools.as_packaged import USER
from tests.support.forked import Forked

# Of prctl(): whoever becomes another user may still read the code, which may be root's alone.
_PR_SET_SECUREBITS, _NO_SETUID_FIXUP = 28, 1 << 2


def as_user(work):
    """Return what *work* returns there, or raise what it raises. What it makes is the user's."""

    def begin(hear, say):
        user = pwd.getpwnam(USER)
        if ctypes.CDLL(None).prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0) != 0:
            raise OSError("the process may not become another user")
        os.setgroups([])
        os.setresgid(*[user.pw_gid] * 3)
        os.setresuid(*[user.pw_uid] * 3)
        try:
            found = True, work()
        except Exception as err:  # noqa: BLE001 - the caller gets it
            found = False, err
        say(pickle.dumps(found).hex())

    child = Forked(begin)
    said = child.hear()
    child.wait()
    done, found = pickle.loads(bytes.fromhex(said))
    if not done:
        raise found
    return found
