"""Wraps the functions of Salt that safeupdate replaces, when Salt loads its engines."""

from tests.support.foreign import wrap_everything


def __virtual__():
    wrap_everything(__opts__, "before")
    return False, "there is nothing to run"
