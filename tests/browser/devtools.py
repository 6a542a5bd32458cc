"""A headless Chromium, driven over the DevTools protocol through a pipe: Python's own library is enough."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]


def find():
    """The browser's path, or None. The variable CHROMIUM names one that is not on the path."""
    named = os.environ.get("CHROMIUM")
    return named if named else next(filter(None, map(shutil.which, NAMES)), None)


def install():
    """Installs Chromium from Debian's packages, where that is possible."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return None
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["apt-get", "update"], **quiet)
    subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"], **quiet)
    return find()


class Page:
    """One tab. What goes wrong in it is collected in `troubles`, what it asks the network for in `requests`."""

    def __init__(self, browser, width=1280, height=900):
        self.folder = tempfile.TemporaryDirectory()
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        flags = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "about:blank",
        ]
        # The browser reads commands from descriptor 3 and answers on 4.
        shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser} 2>/dev/null'
        self.process = subprocess.Popen(["bash", "-c", shell, browser, *flags], pass_fds=(to_browser, from_browser))
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.last, self.session = b"", 0, None
        self.troubles, self.requests, self.answers, self.loaded = [], [], {}, False
        self.frames = []  # sessions of frames that run by themselves
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network", "Performance"]:
            self.call(f"{domain}.enable")
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.resize(width, height)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.read)
        os.close(self.write)
        shutil.rmtree(self.folder.name, ignore_errors=True)

    def message(self, seconds):
        """The next message of the browser, or None."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0, end - time.monotonic()))
            if not ready:
                return None
            read = os.read(self.read, 1 << 20)
            if not read:
                raise RuntimeError("the browser has gone")
            self.buffer += read
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if "id" in message:
            self.answers[message["id"]] = message
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.troubles.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            entry = params["entry"]
            if entry["level"] == "error":
                self.troubles.append(entry["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.troubles.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.troubles.append(f"a dialog: {params['message']}")
        elif method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Target.attachedToTarget" and params["targetInfo"]["type"] == "iframe":
            self.frames.append(params["sessionId"])
        elif method == "Target.detachedFromTarget" and params["sessionId"] in self.frames:
            self.frames.remove(params["sessionId"])

    def call(self, method, seconds=60, session=None, **params):
        """What the browser answers to a command to the page, or to a frame of it."""
        self.last += 1
        number = self.last
        command = {"id": number, "method": method, "params": params}
        if session or self.session:
            command["sessionId"] = session or self.session
        os.write(self.write, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + seconds
        while number not in self.answers:
            message = self.message(end - time.monotonic())
            if message is None:
                raise TimeoutError(f"{method}: no answer in {seconds} s")
            self.note(message)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, path):
        """Opens a file and waits until its script says that it is ready; the seconds that took."""
        self.loaded = False
        start = time.monotonic()
        self.call("Page.navigate", url="file://" + str(path))
        self.until("document.documentElement?.dataset.ready === 'yes'", "the page is ready")
        return time.monotonic() - start

    def js(self, expression, session=None):
        """What an expression comes to, in the page or in a frame of it."""
        result = self.call("Runtime.evaluate", session=session, expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def until(self, expression, what, seconds=60, session=None):
        """Waits until an expression holds."""
        end = time.monotonic() + seconds
        while not self.js(f"Boolean({expression})", session):
            if time.monotonic() > end:
                raise TimeoutError(f"not so after {seconds} s: {what}; troubles: {self.troubles}")
            self.message_or_wait(0.02)

    def frame(self, seconds=30):
        """The session of the frame that the page shows, whose troubles and requests are collected too."""
        end = time.monotonic() + seconds
        while not self.frames:
            if time.monotonic() > end:
                raise TimeoutError(f"there is no frame after {seconds} s; troubles: {self.troubles}")
            self.message_or_wait(0.05)
        for domain in ["Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable", session=self.frames[-1])
        return self.frames[-1]

    def message_or_wait(self, seconds):
        message = self.message(seconds)
        if message is not None:
            self.note(message)

    def resize(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def dark(self, dark=True, medium=""):
        """Shows the page in the dark or in the light, on a screen or on paper (`print`)."""
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", media=medium, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key, code=None, text=None, shift=False):
        modifiers = 8 if shift else 0
        event = {"key": key, "code": code or key, "modifiers": modifiers}
        virtual = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}.get(key)
        if virtual:
            event["windowsVirtualKeyCode"] = virtual
        down = {**event, "type": "keyDown", **({"text": text} if text else {})}
        self.call("Input.dispatchKeyEvent", **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def screenshot(self, path, whole=True):
        """The whole page as a picture, or what is in view."""
        import base64

        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}
        shot = self.call("Page.captureScreenshot", **({"captureBeyondViewport": True, "clip": clip} if whole else {}))
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
