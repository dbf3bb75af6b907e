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


def _signer(run):
    return signer(b'{"a": 1}\n', "/s/m.json.asc", "/k/ring.gpg", run)


def test_whose_key_it_is_is_told():
    gpgv = Gpgv(GOOD)
    assert _signer(gpgv) == "71D1EF6F22418BB2 Jo Doe <jo@example.org>"
    assert gpgv.argv[-3:] == ("/k/ring.gpg", "/s/m.json.asc", "-")
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
def test_everything_else_is_no_signature(stdout, returncode):
    with pytest.raises(VerificationError, match=r"its signature does not hold.*slots_keyring"):
        _signer(Gpgv(stdout, returncode, "gpgv: Can't check signature: No public key\n"))


def test_what_gpgv_says_is_told():
    with pytest.raises(VerificationError, match="No public key"):
        _signer(Gpgv(OF_ANOTHER_KEY, 2, "gpgv: x\ngpgv: Can't check signature: No public key\n"))


def test_without_gpgv_nothing_is_believed():
    def run(argv, **_):
        raise CommandError(argv, "cannot be started: No such file or directory")

    with pytest.raises(VerificationError, match="cannot be started"):
        _signer(run)


def test_what_is_no_text_is_not_even_looked_at():
    with pytest.raises(VerificationError):
        signer(b"\xff", "/s", "/k", Gpgv(GOOD))
