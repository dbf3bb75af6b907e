"""
The distribution's Chromium without a window, driven by its own protocol over pipes.

It runs on the rootfs of the lab, without any network, and sees only the given pages.
``python3 -m devtools.lab.browser`` becomes the browser, in its own mount namespace.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from devtools.command import REPO, ToolError, end, spawn
from devtools.lab.artefacts import LabCache
from devtools.lab.builder import CHROOT_ENV, Root, bind
from devtools.lab.container import Lab

PROGRAM = (
    "/usr/lib/chromium/chromium-headless-shell",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--user-data-dir=/tmp/profile",
    "--remote-debugging-pipe",
    "about:blank",
)
# Seconds for one answer, however busy the machine is.
TIMEOUT = 300.0
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowUp": 38, "ArrowDown": 40, "/": 191}
_TEXTS = {"Enter": "\r", " ": " ", "/": "/"}

Answer = dict[str, Any]


class Browser:
    """A browser; a context manager."""

    def __init__(self, lab: Lab) -> None:
        cache: LabCache = lab.cache
        self._place = lab.run_dir.path / "browser"
        self.pages = self._place / "pages"
        self.pages.mkdir(parents=True)
        (self._place / "scratch").mkdir()
        self._log = (self._place / "log").open("w")
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        os.set_blocking(self._from, False)
        argv = ["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork"]
        argv += ["--kill-child", "--", sys.executable, "-m", "devtools.lab.browser"]
        argv += [str(self._place / "scratch"), f"{cache.browser()}:{cache.rootfs()}"]
        argv += [str(self.pages), str(to_read), str(to_write)]
        self._process = spawn(argv, stdout=self._log, cwd=REPO, pass_fds=(to_read, to_write))
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._begun = b""
        self.events: list[Answer] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)
        os.close(self._to)
        os.close(self._from)
        self._log.close()

    def log(self) -> str:
        return (self._place / "log").read_text(errors="replace")

    def open(self, html: str, *, width: int = 1280, height: int = 900) -> Page:
        """Show a page in a tab of its own."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attach = {"targetId": target, "flatten": True}
        page = Page(self, self.call("Target.attachToTarget", attach)["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        file = self.pages / f"{self._number}.html"
        file.write_text(html, encoding="utf-8")
        page.call("Page.navigate", {"url": f"file:///pages/{file.name}"})
        page.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        return page

    def call(self, method: str, given: Answer | None = None, session: str = "") -> Answer:
        """Call a method of the protocol and return its result. Raises ToolError."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": given or {}}
        asked |= {"sessionId": session} if session else {}
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self._next(deadline)
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise ToolError(f"{method}: {answer['error']}")
            else:
                result: Answer = answer["result"]
                return result

    def _next(self, deadline: float) -> Answer:
        while b"\0" not in self._begun:
            ready, _, _ = select.select([self._from], [], [], max(deadline - time.monotonic(), 0))
            told = os.read(self._from, 1 << 20) if ready else b""
            if not told:
                raise ToolError(f"the browser says nothing more:\n{self.log()}")
            self._begun += told
        first, _, self._begun = self._begun.partition(b"\0")
        answer: Answer = json.loads(first)
        return answer


class Page:
    """A tab that shows one page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, given: Answer | None = None) -> Answer:
        return self._browser.call(method, given, self._session)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression as plain data; a promise is awaited."""
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        found = self.call("Runtime.evaluate", asked)
        if "exceptionDetails" in found:
            raise ToolError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, script: str, satisfied: Callable[[Any], object] = bool) -> Any:
        """Wait until the value of an expression satisfies the condition; return it."""
        deadline = time.monotonic() + TIMEOUT
        while not satisfied(found := self.evaluate(script)):
            if time.monotonic() > deadline:
                raise ToolError(f"{script} is still {found!r}")
            self.drawn()
        return found

    def drawn(self) -> None:
        """Wait until all changes have been drawn."""
        twice = "requestAnimationFrame(() => requestAnimationFrame(() => done(0)))"
        self.evaluate(f"new Promise(done => {twice})")

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, as a person does."""
        for key in keys:
            given = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
            text = {"text": _TEXTS[key]} if key in _TEXTS else {}
            down = "keyDown" if text else "rawKeyDown"
            self.call("Input.dispatchKeyEvent", {"type": down, **given, **text})
            self.call("Input.dispatchKeyEvent", {"type": "keyUp", **given})
        self.drawn()

    def write(self, text: str) -> None:
        """Write into the element that has the focus."""
        self.call("Input.insertText", {"text": text})
        self.drawn()

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)

    def media(self, kind: str = "", scheme: str = "light") -> None:
        """Show the page as in print (*kind* ``print``), or light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", {"media": kind, "features": features})

    def events(self, method: str) -> list[Answer]:
        """Return the events of the browser about this page."""
        return [
            each["params"]
            for each in self._browser.events
            if each.get("method") == method and each.get("sessionId") == self._session
        ]


def main(scratch: str, lower: str, pages: str, to_read: str, to_write: str) -> None:
    """Become the browser, which reads commands from file 3 and answers to file 4."""
    root = Root(Path(scratch), lower)
    bind(Path(pages), root.path / "pages")
    ends = [fcntl.fcntl(int(given), fcntl.F_DUPFD, 10) for given in (to_read, to_write)]
    for number, fd in enumerate(ends, 3):
        os.dup2(fd, number)
    os.execvpe("chroot", ["chroot", str(root.path), *PROGRAM], CHROOT_ENV)  # noqa: S606, S607


if __name__ == "__main__":
    main(*sys.argv[1:6])
