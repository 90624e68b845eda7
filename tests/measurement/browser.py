"""A real browser without a window: headless Chromium, controlled through its own pipe."""

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import wait_for

LIMIT_S = 30
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
    "--disable-features=NetworkTimeServiceQuerying",
)


class Browser:
    """One page. The protocol: https://chromedevtools.github.io/devtools-protocol/"""

    def __init__(self, command_fd: int, answer_fd: int) -> None:
        self._command_fd, self._answer_fd, self._number, self._buffer = command_fd, answer_fd, 0, b""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        phone = {"deviceScaleFactor": 1, "mobile": width < 600}
        self._page("Emulation.setDeviceMetricsOverride", width=width, height=height, **phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._page("Emulation.setEmulatedMedia", features=[scheme])

    def goes(self, url: str) -> None:
        self._page("Page.navigate", url=url)

    def says(self, script: str) -> Any:
        """Return the value of an expression on the page."""
        return self._page("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def waits(self, script: str, limit_s: float = LIMIT_S) -> None:
        wait_for(
            f"on the page it is true: {script}",
            lambda: self.says(script),
            limit_s,
            state=lambda: self.says("document.documentElement.outerHTML"),
        )

    def picture(self, file: Path) -> Path:
        answer = self._page("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))
        return file

    def _page(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._send(method, session=self._session, **parameters)

    def _send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._command_fd,
            json.dumps({**command, **({"sessionId": session} if session else {})}).encode() + b"\0",
        )
        while True:
            answer = self._read_answer()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _read_answer(self) -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT_S
        while b"\0" not in self._buffer:
            assert select.select([self._answer_fd], [], [], max(0, deadline - time.monotonic()))[0], (
                "it says nothing"
            )
            data = os.read(self._answer_fd, 1 << 16)
            assert data, "the browser is gone"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def browser(folder: Path, *flags: str) -> Iterator[Browser]:
    """Start a browser with its files in the folder, and end it."""
    browser_in, command_fd = os.pipe()
    answer_fd, browser_out = os.pipe()
    # Chromium reads commands from descriptor 3, and answers on 4.
    argv = (
        "bash",
        "-c",
        f'exec "$@" 3<&{browser_in} 4>&{browser_out}',
        "bash",
        "chromium",
        *_FLAGS,
        *flags,
        f"--user-data-dir={folder}",
    )
    process = subprocess.Popen(
        argv,
        pass_fds=(browser_in, browser_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(browser_in)
    os.close(browser_out)
    try:
        yield Browser(command_fd, answer_fd)
    finally:
        os.close(command_fd)
        os.close(answer_fd)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait(20)
