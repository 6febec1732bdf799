"""A headless Chromium, driven over the DevTools protocol through a pair of pipes: no port, no driver, no library.

    with Chromium.started(folder) as chromium:
        page = chromium.new_page()
        page.open("http://127.0.0.1:9404/")
        page.until("document.querySelector('h1')?.textContent === 'Overview'")

The protocol: a JSON document and a zero byte each way. A command has a number, its answer the same one; an event has
none. https://chromedevtools.github.io/devtools-protocol/ lists them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 60
PAUSE_S = 0.05
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # Root may not start it otherwise. Tests open pages of their own brokers alone.
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-proxy-server",
)


def program() -> str | None:
    """Returns the path of Chromium on this machine, or None."""
    return next((path for name in PROGRAMS if (path := shutil.which(name)) is not None), None)


class BrowserError(Exception):
    """A command failed, a page raised an exception, or something did not happen in time."""


class Chromium:
    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = to_browser
        self._from = from_browser
        self._unread = b""
        self._sent = 0
        self.pages: dict[str, Page] = {}

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path) -> Iterator[Chromium]:
        """Starts a browser with a profile in `folder`, and ends it."""
        path = program()
        if path is None:
            raise BrowserError(f"none of {', '.join(PROGRAMS)} is on this machine")
        their_input, to_browser = os.pipe()
        from_browser, their_output = os.pipe()
        # Chromium reads descriptor 3 and writes descriptor 4.
        shell = f'exec "$@" 3<&{their_input} 4>&{their_output} {their_input}<&- {their_output}>&-'
        with (folder / "chromium.log").open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", shell, "chromium", path, *FLAGS, f"--user-data-dir={folder / 'profile'}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(their_input, their_output),
                start_new_session=True,
            )
        os.close(their_input)
        os.close(their_output)
        try:
            yield cls(to_browser, from_browser)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(to_browser)
            os.close(from_browser)

    def new_page(self) -> Page:
        """Opens a tab of its own profile."""
        context = self.command("Target.createBrowserContext")["browserContextId"]
        target = self.command("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            page.command(f"{domain}.enable")
        return page

    def command(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """Returns the result. Raises BrowserError."""
        self._sent += 1
        number = self._sent
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        give_up = time.monotonic() + PATIENCE_S
        while True:
            answer = self._next(give_up, method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if answer.get("sessionId") in self.pages:
                self.pages[answer["sessionId"]].events.append((answer["method"], answer["params"]))

    def _next(self, give_up: float, awaited: str) -> Any:
        while b"\0" not in self._unread:
            with selectors.DefaultSelector() as selector:
                selector.register(self._from, selectors.EVENT_READ)
                if not selector.select(max(give_up - time.monotonic(), 0)):
                    raise BrowserError(f"no answer to {awaited} in {PATIENCE_S} s")
            more = os.read(self._from, 1 << 16)
            if not more:
                raise BrowserError(f"the browser ended before the answer to {awaited}; chromium.log says why")
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)


class Page:
    """A tab. `events` are what the browser has reported of it: pairs of method and parameters."""

    def __init__(self, browser: Chromium, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context
        self.events: list[tuple[str, Any]] = []

    def command(self, method: str, **parameters: Any) -> Any:
        return self._browser.command(method, self._session, **parameters)

    def close(self) -> None:
        self._browser.command("Target.disposeBrowserContext", browserContextId=self._context)
        del self._browser.pages[self._session]

    def open(self, url: str) -> None:
        self.command("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression, or of its promise. Raises BrowserError for its exception."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Waits until the expression is true, and returns its value. Raises BrowserError with the page's text."""
        give_up = time.monotonic() + PATIENCE_S
        while not (found := self.value(expression)):
            if time.monotonic() > give_up:
                shown = self.value("document.body.innerText")
                raise BrowserError(f"not in {PATIENCE_S} s: {expression}; the page shows:\n{shown}")
            time.sleep(PAUSE_S)
        return found

    def until_text(self, text: str) -> None:
        """Waits until the page shows the text."""
        self.until(f"document.body?.innerText.includes({json.dumps(text)})")

    def press(self, key: str, text: str | None = None) -> None:
        """Presses and releases a key: `Tab`, `Enter`."""
        codes = {"Tab": 9, "Enter": 13, "Space": 32}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        if text is None and key == "Enter":
            text = "\r"
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.command("Input.dispatchKeyEvent", **common, **down)
        self.command("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Types a text where the focus is."""
        self.command("Input.insertText", text=text)

    def media(self, **features: str) -> None:
        """Sets what the system prefers: `media(prefers_color_scheme="dark")`."""
        pairs = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.command("Emulation.setEmulatedMedia", features=pairs)

    def size(self, width: int, height: int) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def picture(self) -> bytes:
        """Returns what the page shows as a PNG."""
        return base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"])

    def requested(self) -> list[str]:
        """The addresses that the page has asked for."""
        sent = (found for method, found in self.events if method == "Network.requestWillBeSent")
        return [each["request"]["url"] for each in sent]

    def complaints(self) -> list[str]:
        """Exceptions, and what the browser has logged as an error or a warning."""
        found = []
        for method, details in self.events:
            if method == "Runtime.exceptionThrown":
                found.append(str(details["exceptionDetails"]))
            elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                found.append(details["entry"]["text"])
        return found

    def accessible(self) -> list[tuple[str, str]]:
        """Role and name of everything that a screen reader is shown, in its order."""
        nodes = self.command("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]
