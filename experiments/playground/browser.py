"""A headless Chromium, driven by its DevTools protocol over a pipe: nothing to install beside the browser itself."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    *("--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en-US"),
]
DESKTOP, PHONE = (1280, 900), (375, 812)
KEYS = {
    "ArrowUp": 38,
    "ArrowDown": 40,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Home": 36,
    "End": 35,
    "Tab": 9,
    "Enter": 13,
    " ": 32,
}


def find():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One Chromium with one page. Errors of the console and uncaught exceptions gather in `complaints`."""

    def __init__(self, executable):
        self.folder = tempfile.mkdtemp(prefix="playground-")
        (theirs_in, self.out), (self.into, theirs_out) = os.pipe(), os.pipe()
        low = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]
        silent = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        actions = [silent, *((os.POSIX_SPAWN_DUP2, end, place) for end, place in zip(low, (3, 4), strict=True))]
        command = [executable, *FLAGS, f"--user-data-dir={self.folder}", "about:blank"]
        self.pid = os.posix_spawn(executable, command, os.environ, file_actions=actions)
        for end in (theirs_in, theirs_out, *low):
            os.close(end)
        self.buffer, self.number, self.session, self.complaints = b"", 0, None, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.session = None
            self.send("Browser.close")
        for _attempt in range(100):
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                break
            time.sleep(0.05)
        else:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.into)
        os.close(self.out)
        shutil.rmtree(self.folder, ignore_errors=True)

    def send(self, method, **params):
        """The result of a command. Raises RuntimeError for one that fails, TimeoutError after 30 s."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def receive(self):
        """The next message."""
        while b"\0" not in self.buffer:
            if not select.select([self.into], [], [], 30)[0]:
                raise TimeoutError("the browser has not answered for 30 s")
            part = os.read(self.into, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, event, params):
        """Keeps what the page complains about."""
        if event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([each.get("value") for each in params["args"]]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])

    def open(self, url):
        """Loads a page anew and waits until its numbers stand."""
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=url)
        self.wait('document.body?.dataset.ready === "true"')

    def evaluate(self, expression):
        """The value of an expression of JavaScript. Raises RuntimeError for one that throws."""
        done = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"]["description"])
        return done["result"].get("value")

    def wait(self, condition, seconds=10):
        """Waits until an expression is true. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"after {seconds} s not yet: {condition}")
            time.sleep(0.02)

    def settle(self):
        """Waits for two frames: what was asked for is drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind, x, y, held=False):
        """One event of the mouse: mousePressed, mouseMoved or mouseReleased."""
        button = "left" if held or kind != "mouseMoved" else "none"
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=int(held), clickCount=1)

    def drag(self, points):
        """Presses at the first point, moves through the others, lets go at the last."""
        self.mouse("mousePressed", *points[0], held=True)
        for point in points[1:]:
            self.mouse("mouseMoved", *point, held=True)
        self.mouse("mouseReleased", *points[-1])
        self.settle()

    def click(self, selector):
        """A click in the middle of an element."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        x, y, width, height = self.box(selector)
        self.drag([(x + width / 2, y + height / 2)])

    def box(self, selector):
        """[x, y, width, height] of an element in the window."""
        rectangle = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        return self.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({rectangle})")

    def press(self, key, shift=False):
        """One stroke of a key."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 * shift}
        text = {"Enter": {"text": "\r"}, " ": {"text": " "}}.get(key, {})
        self.send("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, selector, text):
        """Types `text` into a field in place of what stood there."""
        self.evaluate(f"(e => (e.focus(), e.select()))(document.querySelector({json.dumps(selector)}))")
        if text:
            self.send("Input.insertText", text=text)
        else:
            self.send("Input.dispatchKeyEvent", type="keyDown", key="Delete", windowsVirtualKeyCode=46)
            self.send("Input.dispatchKeyEvent", type="keyUp", key="Delete", windowsVirtualKeyCode=46)
        self.settle()

    def choose(self, selector, value):
        """Chooses an option of a <select>."""
        change = "(e, v) => { e.value = v; e.dispatchEvent(new Event('change', {bubbles: true})); }"
        self.evaluate(f"({change})(document.querySelector({json.dumps(selector)}), {json.dumps(value)})")
        self.settle()

    def window(self, size, dark=False, density=1.0):
        """The size of the window and the colours that the system prefers."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": density, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file):
        """A PNG of the whole page."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        Path(file).write_bytes(base64.b64decode(data))
