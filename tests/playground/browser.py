"""A headless Chromium over its debugging pipe: no driver package, no port, real keys and real files."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Only reached when the browser hangs; a page answers in milliseconds.
PATIENCE_SECONDS = 60.0
KEYS = {" ": ("Space", 32), "Tab": ("Tab", 9), "ArrowLeft": ("ArrowLeft", 37), "ArrowRight": ("ArrowRight", 39),
        "Home": ("Home", 36), "End": ("End", 35), "Enter": ("Enter", 13)}  # fmt: skip


class Browser:
    """One browser with one page. requests: addresses that the page asked for; errors: what it threw."""

    def __init__(self) -> None:
        self.profile = tempfile.mkdtemp(prefix="specverify-chromium-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def pipes() -> None:
            # The protocol's place: commands on 3, answers on 4. Duplicated first, as either may sit there already.
            commands, answers = os.dup(to_browser), os.dup(from_browser)
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self._process = subprocess.Popen(
            [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.profile}"],
            close_fds=False, preexec_fn=pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "DOM"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=PATIENCE_SECONDS)
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, path: Path, *, width: int = 1000, height: int = 900, dark: bool = False) -> None:
        self.requests.clear()
        self.errors.clear()
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        # An empty page first: the same address with another hash would not load again.
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("document.readyState === 'complete' && document.getElementById('totals').textContent !== ''")

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression, awaited if it is a promise. Raises RuntimeError where it throws."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", answer))
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.evaluate(f"(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"):
            if time.monotonic() > end:
                raise TimeoutError(f"never became true: {expression}; the page said {self.errors}")
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """A real key press, which goes wherever the focus is."""
        code, number = KEYS[key]
        what = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        self.send("Input.dispatchKeyEvent", type="keyDown", **what, **({"text": key} if key == " " else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **what)

    def choose_file(self, selector: str, path: Path) -> None:
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def screenshot(self, path: Path) -> None:
        """The whole page, as it would be printed on one long sheet."""
        image = self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(image))

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(answer["params"]["exceptionDetails"].get("exception", {}).get("description")))
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._read, 1 << 16)
            if not data:
                raise RuntimeError("the browser went away")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(line))
