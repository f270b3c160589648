"""A headless Chromium spoken to over its debugging pipe: no network port and no client library."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def _pipe() -> tuple[int, int]:
    """A pipe with both ends above the numbers that Chromium uses."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Browser:
    """One browser with one page; messages are JSON with a zero byte after each (Chrome DevTools protocol)."""

    def __init__(self, chromium: str, profile: Path) -> None:
        theirs_in, self._out = _pipe()
        self._in, theirs_out = _pipe()
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}',
                "bash",
                chromium,
                *FLAGS,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # its helpers end with it
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._held = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda m: m.get("id") == self._number)
        assert "error" not in answer, answer
        return dict(answer["result"])

    def visit(self, address: str, width: int, height: int = 900, scheme: str = "light") -> None:
        """Load a page in a window of a width; not as a phone, which would zoom out until an over-wide page fits."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=address)
        if not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._until(lambda m: m.get("method") == "Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings on the console since the page was asked for, and failures of its script."""
        out = []
        for event in self.events:
            data = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                out.append(str(data["exceptionDetails"].get("text")))
            elif event["method"] == "Runtime.consoleAPICalled" and data["type"] in ("error", "warning", "assert"):
                out.append(f"console.{data['type']}")
            elif event["method"] == "Log.entryAdded" and data["entry"]["level"] in ("error", "warning"):
                out.append(str(data["entry"]["text"]))
        return out

    def requests(self) -> list[str]:
        """Every address that was fetched since the page was asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        """End the browser and its helpers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def _until(self, wanted: Callable[[dict[str, Any]], bool], seconds: float = 60.0) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            while b"\0" in self._held:
                line, self._held = self._held.split(b"\0", 1)
                message = json.loads(line)
                if "method" in message:
                    self.events.append(message)
                if wanted(message):
                    return dict(message)
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._in, 1 << 16)
            assert part, "the browser has ended"
            self._held += part
