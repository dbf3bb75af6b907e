import os

import pytest

from saltext_safeupdate.core.errors import CommandError, VerificationError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.slots.signature import signer

# What gpgv 2.2 prints.
GOOD = """\
[GNUPG:] NEWSIG
[GNUPG:] KEY_CONSIDERED 8F85FCE56C51AEB3CFF2C73B71D1EF6F22418BB2 0
[GNUPG:] SIG_ID KroK/dGOVDWHn0NRbGCBSzhcMXQ 2026-11-25 1795631294
[GNUPG:] KEY_CONSIDERED 8F85FCE56C51AEB3CFF2C73B71D1EF6F22418BB2 0
[GNUPG:] GOODSIG 71D1EF6F22418BB2 Jo Doe <jo@example.org>
[GNUPG:] VALIDSIG 8F85FCE56C51AEB3CFF2C73B71D1EF6F22418BB2 2026-11-25 1795631294 0 4 0 22 8 00 8F8
"""
CHANGED = """\
[GNUPG:] NEWSIG
[GNUPG:] BADSIG 71D1EF6F22418BB2 Jo Doe <jo@example.org>
"""
OF_ANOTHER_KEY = """\
[GNUPG:] NEWSIG
[GNUPG:] ERRSIG 71D1EF6F22418BB2 22 8 00 1795631294 9 8F85FCE56C51AEB3CFF2C73B71D1EF6F22418BB2
[GNUPG:] NO_PUBKEY 71D1EF6F22418BB2
"""
EXPIRED = GOOD.replace("GOODSIG", "EXPKEYSIG")


class Gpgv:
    """Prints what it is told to."""

    def __init__(self, stdout, returncode=0, stderr=""):
        self.result = Result(argv=("gpgv",), returncode=returncode, stdout=stdout, stderr=stderr)
        self.argv, self.stdin = (), None

    def __call__(self, argv, *, timeout, ok=(0,), env=None, stdin=None, keep=None):
        self.argv, self.stdin = argv, stdin
        return self.result


@pytest.fixture
def ring(tmp_path):
    path = tmp_path / "ring.gpg"
    path.touch()
    return path


@pytest.fixture
def sign(ring):
    return lambda run: signer(b'{"a": 1}\n', "/s/m.json.asc", str(ring), run)


def test_whose_key_it_is_is_told(sign, ring):
    gpgv = Gpgv(GOOD)
    assert sign(gpgv) == "71D1EF6F22418BB2 Jo Doe <jo@example.org>"
    assert gpgv.argv[-3:] == (str(ring), "/s/m.json.asc", "-")
    assert gpgv.stdin == '{"a": 1}\n', "what is believed is what was looked at"


@pytest.mark.parametrize(
    ("stdout", "returncode"),
    [
        (CHANGED, 1),
        (OF_ANOTHER_KEY, 2),
        ("", 0),
        ("", 2),
        # gpgv itself says that it worked.
        (EXPIRED, 0),
        (GOOD.replace("GOODSIG", "REVKEYSIG"), 0),
        (GOOD + CHANGED, 0),
        (GOOD.replace("VALIDSIG", "OTHER"), 0),
        (GOOD, 1),
        (GOOD.replace("[GNUPG:] ", ""), 0),
    ],
)
def test_everything_else_is_no_signature(sign, stdout, returncode):
    with pytest.raises(VerificationError, match=r"its signature is not valid.*slots_keyring"):
        sign(Gpgv(stdout, returncode, "gpgv: Can't check signature: No public key\n"))


def test_what_gpgv_says_is_told(sign):
    with pytest.raises(VerificationError, match="No public key"):
        sign(Gpgv(OF_ANOTHER_KEY, 2, "gpgv: x\ngpgv: Can't check signature: No public key\n"))


def test_without_gpgv_nothing_is_believed(sign):
    def run(argv, **_):
        raise CommandError(argv, "cannot be started: No such file or directory")

    with pytest.raises(VerificationError, match="cannot be started"):
        sign(run)


def test_what_is_no_text_is_not_even_looked_at(ring):
    with pytest.raises(VerificationError):
        signer(b"\xff", "/s", str(ring), Gpgv(GOOD))


def _armored(ring):
    ring.write_bytes(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n")


def _a_pipe(ring):
    ring.unlink()
    os.mkfifo(ring)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_armored, "is armored, .* without '--armor'"),
        (lambda ring: ring.unlink(), "cannot be read: No such file"),
        (_a_pipe, "is not a regular file"),
    ],
    ids=["armored", "gone", "pipe"],
)
def test_a_keyring_that_gpgv_finds_no_key_in_is_told(sign, ring, change, said):
    """gpgv says that the key of the signer is missing, and somebody looks there in vain."""
    change(ring)
    with pytest.raises(VerificationError, match=rf"'safeupdate:slots_keyring' is .*{said}"):
        sign(Gpgv(OF_ANOTHER_KEY, 2, "gpgv: Can't check signature: No public key\n"))
