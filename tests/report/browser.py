"""A real Chromium without a window, spoken to over its debugging pipe: a page is loaded, asked, pressed, and printed.

Source: Chrome DevTools Protocol; with ``--remote-debugging-pipe`` messages are JSON between zero bytes on descriptors
3 and 4.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Browser", "browser", "missing"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS = 60.0
_AT_3_AND_4 = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def missing() -> str:
    """Why no browser can be had here; empty where one can."""
    return "" if any(map(shutil.which, NAMES)) else f"no Chromium here (looked for {', '.join(NAMES)})"


class Browser:
    """One page of a running browser.

    Attributes:
        errors: what the console and the page's policy complained of, and exceptions, since the page was opened.
        requests: addresses that the page asked for, its own left out.
    """

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._waiting = b""
        self._number = 0
        self._session = ""
        self._events: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                return dict(found["result"])

    def open(
        self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False, phone: bool = False
    ) -> float:
        """Load a file; seconds until it is loaded and its first picture is drawn."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.ask(
            "Emulation.setEmulatedMedia",
            media="",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.errors.clear()
        self.requests.clear()
        began = time.perf_counter()
        self.load(path)
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        return time.perf_counter() - began

    def load(self, path: Path) -> None:
        """Load a file as the page is set up now."""
        self._events.clear()
        self.ask("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._next()

    def value(self, expression: str) -> Any:
        """What an expression gives in the page; a promise is waited for."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}.get(
            key, 0
        )
        more = {"text": text} if text else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def point(self, x: float, y: float) -> None:
        """Move the pointer to a place of the window."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def download(self, press: str, folder: Path) -> Path:
        """Evaluate an expression that saves a file, wait for the file, and return its path in the folder."""
        self.ask("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        self._events.clear()
        self.value(press)
        while True:
            for event in self._events:
                if event.get("method") == "Page.downloadProgress" and event["params"]["state"] == "completed":
                    name = next(e["params"] for e in self._events if e.get("method") == "Page.downloadWillBegin")
                    return folder / name["suggestedFilename"]
            self._next()

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write what the page looks like, as PNG."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            ready, _, _ = select.select([self._read], [], [], _SECONDS)
            assert ready, "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser ended"
            self._waiting += data
        raw, _, self._waiting = self._waiting.partition(b"\0")
        found: dict[str, Any] = json.loads(raw)
        if "method" in found:
            self._note(found["method"], found.get("params", {}))
            self._events.append(found)
        return found

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"].get("exception", {}).get("description", params)))
        elif method == "Log.entryAdded":
            self.errors.append(str(params["entry"].get("text")))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str(params["args"]))
        elif method == "Network.requestWillBeSent" and params.get("type") != "Document":
            self.requests.append(params["request"]["url"][:200])


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with a profile of its own, and end it."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    # Above 3 and 4, so that neither overwrites the other.
    ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read, from_write)]

    program = next(path for path in map(shutil.which, NAMES) if path)
    child = subprocess.Popen(
        [sys.executable, "-c", _AT_3_AND_4, *map(str, ends), program, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=ends,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for fd in (to_read, from_write, *ends):
        os.close(fd)
    try:
        yield Browser(to_write, from_read)
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        os.close(to_write)
        os.close(from_read)
