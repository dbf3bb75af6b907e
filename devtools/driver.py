"""Runs in a master's Python: publishes jobs and shows events, driven by lines of JSON.

``driver.py CONFIG FD`` answers each request line with one reply line. A fork of it, so that Salt
is loaded once, writes each event of the master's bus as a line to the descriptor FD. Stands alone:
imports Salt and the standard library, nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any


def _master_opts(path: str) -> dict[str, Any]:
    import salt.config

    opts: dict[str, Any] = salt.config.client_config(path)
    return opts


def _plain(value: Any) -> str:
    def other(item: Any) -> str:
        return item.decode(errors="replace") if isinstance(item, bytes) else str(item)

    return json.dumps(value, default=other)


class Client:
    """The requests that the ``client`` mode knows; each returns the reply's fields."""

    def __init__(self, config: str) -> None:
        import salt.client

        self.config = config
        self.local = salt.client.LocalClient(c_path=config)
        self._minion: Any = None

    def publish(
        self,
        target: str | list[str],
        function: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        tgt_type: str = "glob",
        jid: str = "",
    ) -> dict[str, Any]:
        call = list(args)
        if kwargs:
            call.append({"__kwarg__": True, **kwargs})
        sent = self.local.pub(target, function, call, tgt_type, ret="", jid=jid, timeout=15)
        return {"jid": sent.get("jid") or jid, "minions": sent.get("minions", [])}

    def new_jid(self) -> dict[str, Any]:
        import salt.utils.jid

        return {"jid": salt.utils.jid.gen_jid(self.local.opts)}

    def returned(self, jid: str) -> dict[str, Any]:
        """Return what the master's job cache holds for *jid*."""
        import salt.config
        import salt.minion

        if self._minion is None:
            opts = salt.config.master_config(self.config)
            self._minion = salt.minion.MasterMinion(opts, states=False, rend=False)
        cache = self._minion.opts["master_job_cache"]
        return {"returns": self._minion.returners[f"{cache}.get_jid"](jid)}

    def runner(
        self, function: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        import salt.config
        import salt.runner

        opts = salt.config.master_config(self.config)
        client = salt.runner.RunnerClient(opts)
        low = {"arg": list(args), "kwarg": dict(kwargs or {})}
        return {"return": client.cmd(function, print_event=False, full_return=False, **low)}

    def fire(self, tag: str, data: dict[str, Any]) -> dict[str, Any]:
        import salt.utils.event

        bus = salt.utils.event.get_master_event(self.local.opts, self.local.opts["sock_dir"])
        with bus:
            return {"fired": bus.fire_event(data, tag)}


def serve(config: str) -> None:
    # Salt may print; replies need a stream of their own.
    replies, sys.stdout = sys.stdout, sys.stderr
    client = Client(config)
    print(_plain({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        number, action = request.pop("id"), request.pop("do")
        try:
            reply = getattr(client, action)(**request)
        except Exception as err:  # noqa: BLE001 - whatever it is, the caller has to see it
            reply = {"error": f"{type(err).__name__}: {err}"}
        print(_plain({"id": number, "time": time.time(), **reply}), file=replies, flush=True)


def events(config: str, out: int) -> None:
    import salt.utils.event

    opts = _master_opts(config)
    bus = salt.utils.event.get_master_event(opts, opts["sock_dir"], listen=True)
    with os.fdopen(out, "w") as lines:
        print(_plain({"ready": True}), file=lines, flush=True)
        while True:
            event = bus.get_event(wait=1, full=True, auto_reconnect=True)
            if event:
                found = {"tag": event["tag"], "data": event["data"], "time": time.time()}
                print(_plain(found), file=lines, flush=True)


def main(config: str, out: int) -> None:
    # Modules that both of them use; none of them has a thread or a socket yet.
    import salt.client
    import salt.utils.event  # noqa: F401

    if os.fork():
        os.close(out)
        serve(config)
    else:
        # Requests and replies are the other one's.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        events(config, out)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
