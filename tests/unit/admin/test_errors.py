import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.admin.errors import as_salts
from saltext_safeupdate.core.errors import (
    InputError,
    LockHeldError,
    SafeUpdateError,
    one_line,
)


@pytest.mark.parametrize("kind", [SafeUpdateError, LockHeldError, InputError])
def test_an_error_of_ours_is_salts(kind):
    with pytest.raises(CommandExecutionError, match=r"^why$") as raised, as_salts():
        raise kind("why")
    assert type(raised.value.__cause__) is kind


def test_other_errors_stay_what_they_are():
    with pytest.raises(KeyError), as_salts():
        raise KeyError("why")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain words", "plain words"),
        ("two\n lines\tand\u2028more", "two lines and more"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("turned \u202eround", "turned \\u202eround"),
        ("\udc80", "\\udc80"),
        (5, "5"),
    ],
)
def test_a_message_is_one_line_that_a_terminal_shows(said, shown):
    assert one_line(said) == shown
