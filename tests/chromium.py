"""A real Chromium without a window, driven by its DevTools protocol: pages as people see them."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_S = 30.0


class Browser:
    """One browser with one page.

    Args:
        profile: an empty folder.
        width, height: of the window, CSS pixels.
    """

    def __init__(self, profile: Path, width: int = 1280, height: int = 800) -> None:
        assert BINARY is not None
        self._command = [
            BINARY, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-extensions", "--disable-background-networking", "--disable-component-update",
            "--hide-scrollbars",
            f"--user-data-dir={profile}", "--remote-debugging-port=0", f"--window-size={width},{height}", "about:blank",
        ]  # fmt: skip
        self._profile = profile
        self._numbers = itertools.count(1)
        self._size = (width, height)

    async def __aenter__(self) -> Self:
        quiet = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=quiet, stderr=quiet)
        port_file, end = self._profile / "DevToolsActivePort", time.monotonic() + PATIENCE_S
        while not (port_file.exists() and len(lines := port_file.read_text().split()) == 2):
            assert self._process.returncode is None, f"chromium ended with {self._process.returncode}"
            assert time.monotonic() < end, "chromium does not start"
            await asyncio.sleep(0.05)
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{lines[0]}/json/list") as answer:
            page = next(target for target in await answer.json() if target["type"] == "page")
        self._socket = await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)
        await self.call("Page.enable")
        await self.screen(*self._size)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._socket.send_json({"id": 0, "method": "Browser.close"})  # ends its other processes too
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._session.close()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; its result."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = json.loads((await self._socket.receive()).data)
                if message.get("id") == number:
                    assert "error" not in message, message
                    return dict(message["result"])

    async def screen(self, width: int, height: int, scale: float = 1.0) -> None:
        """The page's size in CSS pixels, and device pixels of each."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    async def open(self, url: str) -> None:
        """Goes to a page."""
        await self.call("Page.navigate", url=url)

    async def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def until(self, expression: str) -> None:
        """Waits until a JavaScript expression is true."""
        end = time.monotonic() + PATIENCE_S
        while not await self.ask(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            await asyncio.sleep(0.05)

    async def key(self, key: str, code: int) -> None:
        """Presses and lets go of a key."""
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    async def picture(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])
