"""A real browser without a window: headless Chromium, told what to do through its own pipe."""

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

    def __init__(self, to: int, of: int) -> None:
        self._to, self._of, self._number, self._rest = to, of, 0, b""
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
        """The value of an expression on the page."""
        return self._page("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def waits(self, script: str, limit_s: float = LIMIT_S) -> None:
        wait_for(
            f"on the page it is true: {script}",
            lambda: self.says(script),
            limit_s,
            state=lambda: self.says("document.documentElement.outerHTML"),
        )

    def picture(self, file: Path) -> Path:
        said = self._page("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(said["data"]))
        return file

    def _page(self, method: str, **words: Any) -> dict[str, Any]:
        return self._send(method, session=self._session, **words)

    def _send(self, method: str, session: str | None = None, **words: Any) -> dict[str, Any]:
        self._number += 1
        told = {"id": self._number, "method": method, "params": words}
        os.write(
            self._to, json.dumps({**told, **({"sessionId": session} if session else {})}).encode() + b"\0"
        )
        while True:
            said = self._said()
            if said.get("id") == self._number:
                assert "error" not in said, said
                found: dict[str, Any] = said["result"]
                return found

    def _said(self) -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT_S
        while b"\0" not in self._rest:
            assert select.select([self._of], [], [], max(0, deadline - time.monotonic()))[0], (
                "it says nothing"
            )
            some = os.read(self._of, 1 << 16)
            assert some, "the browser is gone"
            self._rest += some
        message, _, self._rest = self._rest.partition(b"\0")
        said: dict[str, Any] = json.loads(message)
        return said


@contextmanager
def browser(folder: Path, *flags: str) -> Iterator[Browser]:
    """Its files are in the folder."""
    theirs, to = os.pipe()
    of, back = os.pipe()
    # It reads what it is told at 3, and answers at 4.
    argv = (
        "bash",
        "-c",
        f'exec "$@" 3<&{theirs} 4>&{back}',
        "bash",
        "chromium",
        *_FLAGS,
        *flags,
        f"--user-data-dir={folder}",
    )
    process = subprocess.Popen(
        argv,
        pass_fds=(theirs, back),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs)
    os.close(back)
    try:
        yield Browser(to, of)
    finally:
        os.close(to)
        os.close(of)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait(20)
