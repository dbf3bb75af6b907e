import shlex

import pytest
import salt.utils.args

from saltext_safeupdate.core import errors


def test_all_are_of_one_family():
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    mine = [each for each in classes if each.__module__ == errors.__name__]
    assert len(mine) > 5
    assert all(issubclass(each, errors.SafeUpdateError) for each in mine)


def test_a_command_error_names_the_program_and_not_its_arguments():
    err = errors.CommandError(("mount", "password=secret"), "exit status 1", stderr="no\n")
    assert str(err) == "mount: exit status 1: no"
    assert err.argv == ("mount", "password=secret")


def test_a_command_error_shows_the_end_of_what_was_printed():
    err = errors.CommandError(("x",), "failed", stdout="a" * 5000 + "end")
    assert str(err).endswith("aend")
    assert len(str(err)) < 2100


def test_a_command_error_without_output_has_no_colon_at_its_end():
    assert str(errors.CommandError(("x",), "cannot be started")) == "x: cannot be started"


@pytest.mark.parametrize("version", ["3008.10", "3008", "1:3008.3-2", "3008.3~rc1", "1e3"])
def test_a_version_in_a_command_arrives_as_it_was(version):
    """Salt's command line makes 3008.1 of 3008.10 that is in no quotes."""
    (word,) = shlex.split(errors.argument(version))
    assert salt.utils.args.yamlify_arg(word) == version
