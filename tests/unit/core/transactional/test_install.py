"""What happens inside the transaction that installs the minion's packages."""

import pytest

from saltext_safeupdate.core.errors import VerificationError
from saltext_safeupdate.core.transactional import install
from tests.support.fakes import FakeRunner

RPM = ("rpm", "--upgrade", "--oldpackage", "--replacepkgs", "/c/a.rpm", "/c/b.rpm")
DONE, FAILED = (0, "", ""), (1, "", "a conflicts with c")


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "salt-minion"
    path.write_text("#!/usr/bin/python3.14\n")
    return str(path)


@pytest.fixture
def carried(monkeypatch):
    calls = []
    monkeypatch.setattr(install, "carry_extensions", lambda *args: calls.append(args))
    return calls


def test_rpm_installs_all_in_one_go(carried):
    run = FakeRunner({RPM: DONE})
    assert install.main(["--", *RPM[-2:]], run) == 0
    assert (run.calls, carried) == ([RPM], [])


def test_what_rpm_refuses_is_not_kept(capsys, carried, program):
    run = FakeRunner({RPM: FAILED})
    words = ["--program", program, "--extensions", "/c/extensions", "--", *RPM[-2:]]
    assert install.main(words, run) == 1
    assert "a conflicts with c" in capsys.readouterr().err
    assert carried == []


def test_what_is_beside_salt_goes_into_the_new_interpreter(carried, program):
    run = FakeRunner({RPM: DONE})
    words = ["--program", program, "--extensions", "/c/extensions", "--", *RPM[-2:]]
    assert install.main(words, run) == 0
    assert carried == [("/usr/bin/python3.14", run, "/c/extensions")]


@pytest.mark.parametrize("strict", [True, False])
def test_what_cannot_be_imported(monkeypatch, capsys, program, strict):
    def carry(*args):
        raise VerificationError("cannot import it")

    monkeypatch.setattr(install, "carry_extensions", carry)
    words = ["--program", program, "--extensions", "/c/e", *["--strict"] * strict, "--", *RPM[-2:]]
    assert install.main(words, FakeRunner({RPM: DONE})) == int(strict)
    assert "cannot import it" in capsys.readouterr().err
