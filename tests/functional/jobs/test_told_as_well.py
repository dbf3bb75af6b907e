"""What the next minion is told as well comes to it by Salt's own event bus."""

import socket
import time

import salt.config
import salt.payload

from saltext_safeupdate.minion import own_bus
from saltext_safeupdate.minion.commands import Commands
from tests.support.forked import forked
from tests.support.succession import paths, short_directory


def test_it_comes_to_who_listens_under_the_common_names():
    with short_directory() as sockets:
        opts = {**salt.config.DEFAULT_MINION_OPTS, "id": "m1", "sock_dir": sockets}

        def listen(hear, say):
            taken = []
            for path in paths(opts):
                taken.append(socket.socket(socket.AF_UNIX))
                taken[-1].bind(path)
                taken[-1].listen(5)
            say("bound")
            said = b""
            while not said:
                # Who looks whether somebody listens says nothing.
                with taken[1].accept()[0] as client, client.makefile("rb") as stream:
                    said = stream.read()
            say(repr(said))

        with forked(listen) as later:
            assert later.hear() == "bound"
            assert own_bus.listener(opts) == later.pid
            commands = Commands(time.monotonic, lambda pid: pid == later.pid)
            for tag in ("pillar_refresh", "module_refresh"):
                commands.keep(f"{tag}\n\n".encode() + salt.payload.dumps({"clean_cache": True}))
            commands.tell({**opts, "sock_dir": "elsewhere"}, sockets)
            heard = later.hear()
            assert heard.index("pillar_refresh") < heard.index("module_refresh")
            assert "clean_cache" in heard
