"""The signer of a manifest, by GnuPG's gpgv, which needs only the keys of one file."""

from __future__ import annotations

from ..errors import CommandError, VerificationError, one_line
from ..host import files
from ..host.command import Run

# The suffix of the signature of a manifest.
SUFFIX = ".asc"
_TIMEOUT = 60.0
_MARK = "[GNUPG:] "
_GOOD = {"GOODSIG", "VALIDSIG"}
# The output of "gpg --armor --export" begins so; gpgv finds no key in it, and does not say why.
_ARMORED = b"-----BEGIN PGP"
_BAD = {"BADSIG", "ERRSIG", "EXPSIG", "EXPKEYSIG", "REVKEYSIG", "NODATA", "FAILURE"}


def signer(content: bytes, signature: str, keyring: str, run: Run) -> str:
    """
    Return the owner of the key in the file *keyring* that has signed the content.

    *signature* is a path. Raise VerificationError without a valid signature: also if one of several
    is not valid, if its key has expired or was revoked, or if gpgv or the keyring is missing.
    """
    unusable = _unusable(keyring)
    if unusable:
        raise VerificationError(
            one_line(
                f"The manifest is refused: 'safeupdate:slots_keyring' is {keyring}, and {unusable}."
            )
        )
    try:
        text = content.decode("utf-8")
        argv = ("gpgv", "--status-fd", "1", "--keyring", keyring, signature, "-")
        result = run(argv, timeout=_TIMEOUT, ok=None, stdin=text)
    except (UnicodeDecodeError, CommandError) as err:
        raise VerificationError(_told(f"it cannot be checked: {err}")) from err
    found = statuses(result.stdout)
    if result.returncode != 0 or not found.keys() >= _GOOD or found.keys() & _BAD:
        said = result.stderr.strip().splitlines()
        raise VerificationError(_told(said[-1] if said else f"gpgv said {result.returncode}"))
    return one_line(found["GOODSIG"])


def statuses(printed: str) -> dict[str, str]:
    """Return the output of gpgv for programs: the last text of each kind, by kind."""
    told = [line.removeprefix(_MARK) for line in printed.splitlines() if line.startswith(_MARK)]
    parted = [line.partition(" ") for line in told]
    return {kind: text for kind, _, text in parted}


def _unusable(keyring: str) -> str:
    """Return why gpgv would find no key in a file, and what to do; empty if it may find one."""
    try:
        fd = files.open_regular(keyring)
    except OSError as err:
        return f"that cannot be read: {err.strerror}. Nothing was changed; put the keys there"
    if fd is None:
        return "that is not a regular file. Nothing was changed; put the keys there"
    with open(fd, "rb") as file:
        armored = file.read(len(_ARMORED)) == _ARMORED
    if not armored:
        return ""
    return (
        "that is armored, which gpgv cannot read. Nothing was changed; write it again with "
        "'gpg --export', without '--armor'"
    )


def _told(reason: str) -> str:
    return one_line(
        f"The manifest is refused: its signature is not valid ({reason}). Nothing was changed; "
        "sign it with a key of 'safeupdate:slots_keyring'."
    )
