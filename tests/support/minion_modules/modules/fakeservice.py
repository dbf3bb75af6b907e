"""Services that only write down what is asked of them."""

from tests.support.packages import Database

__virtualname__ = "service"


def __virtual__():
    if "fake_packages" not in __opts__:
        return False, "the option fake_packages names no database"
    return __virtualname__


def _note(what, name):
    Database(__opts__["fake_packages"]).note(what, name)
    return True


def status(name, *args, **kwargs):
    return True


def available(name):
    return True


def enabled(name, **kwargs):
    return True


def get_all():
    return ["salt-minion", "other"]


def start(name, **kwargs):
    return _note("service.start", name)


def stop(name, **kwargs):
    return _note("service.stop", name)


def restart(name, no_block=True):
    return _note("service.restart", name)


def reload_(name, **kwargs):
    return _note("service.reload", name)


__func_alias__ = {"reload_": "reload"}
