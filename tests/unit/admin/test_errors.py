import pytest
from salt.exceptions import CommandExecutionError, SaltInvocationError

from saltext_safeupdate.admin.errors import as_salts
from saltext_safeupdate.core.errors import InputError, LockHeldError, SafeUpdateError


@pytest.mark.parametrize("kind", [SafeUpdateError, LockHeldError, InputError])
def test_an_error_of_ours_is_salts(kind):
    with pytest.raises(CommandExecutionError, match=r"^why$") as raised, as_salts():
        raise kind("why")
    assert type(raised.value.__cause__) is kind


def test_what_the_caller_gave_may_be_an_error_of_its_own():
    with pytest.raises(SaltInvocationError, match="why"), as_salts(SaltInvocationError):
        raise InputError("why")
    with pytest.raises(CommandExecutionError), as_salts(SaltInvocationError):
        raise LockHeldError("why")


def test_other_errors_stay_what_they_are():
    with pytest.raises(KeyError), as_salts():
        raise KeyError("why")
