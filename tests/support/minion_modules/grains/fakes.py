"""
Puts the fakes into the processes of a real minion, before it loads anything of ours.

Grains are the first thing that a minion loads; the option ``fake_packages`` asks for this.
"""

from saltext_safeupdate.core import wiring
from saltext_safeupdate.core.host import init_system
from tests.support.packages import Database, FakeManager
from tests.support.services import FakeServices


def __virtual__():
    if "fake_packages" not in __opts__:
        return False, "the option fake_packages names no database"
    database = Database(__opts__["fake_packages"])
    manager = FakeManager(database)
    services = FakeServices(database, __opts__["safeupdate"]["state_dir"])
    wiring.package_manager = lambda: manager
    init_system.detect = lambda: services
    # No tree is replaced, so none has to be kept.
    from saltext_safeupdate.this_host import Host

    Host.roots = lambda self: ()
    return True


def fakes():
    return {}
