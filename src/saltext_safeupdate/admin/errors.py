"""Our errors as Salt's, which Salt shows to whoever called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from salt.exceptions import CommandExecutionError, SaltException

from ..core.errors import InputError, SafeUpdateError


@contextmanager
def as_salts(
    invalid_input: type[SaltException] = CommandExecutionError,
) -> Iterator[None]:
    """Raise CommandExecutionError for an error of ours, *invalid_input* for an InputError."""
    try:
        yield
    except InputError as err:
        raise invalid_input(str(err)) from err
    except SafeUpdateError as err:
        raise CommandExecutionError(str(err)) from err
