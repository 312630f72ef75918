# SPDX-License-Identifier: BSD-2-Clause
"""A headless Chromium for tests, by chromedriver's own protocol (W3C WebDriver: JSON over HTTP). Everything that it could
look up is refused but 127.0.0.1, and nothing of it stays behind."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from tarntest import PATIENCE, Skip

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
ARGUMENTS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-crash-reporter", "--disable-breakpad", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip


def programs():
    """Chromium and its driver; skips the test where one is missing."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        raise Skip("chromium and chromedriver are not installed (Debian: chromium, chromium-driver)")
    return browser, driver


class Browser:
    def __init__(self):
        browser, driver = programs()
        self.folder = tempfile.mkdtemp(prefix="tarn-browser-", dir="/tmp")
        self.session = self.base = None
        log = os.path.join(self.folder, "driver.log")
        with open(log, "wb") as out:
            # A group of its own: whatever it has started ends with it.
            self.process = subprocess.Popen(
                [driver, "--port=0"], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env={**os.environ, "HOME": self.folder, "TMPDIR": self.folder},
            )  # fmt: skip
        try:
            self.base = f"http://127.0.0.1:{self.port(log)}"
            options = {"binary": browser, "args": [*ARGUMENTS, f"--user-data-dir={self.folder}/profile"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self.session = answer["sessionId"]
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if failure[0] is not None and self.session:
            print("# the browser shows:", flush=True)
            try:
                for line in self.run("return document.body.innerText").splitlines()[:40]:
                    print("#  ", line, flush=True)
                for entry in self.log():
                    print("# console:", entry, flush=True)
            except (OSError, AssertionError) as error:
                print("#  ", error, flush=True)
        self.close()

    def port(self, log):
        end = time.monotonic() + PATIENCE
        while True:
            with open(log, errors="replace") as file:
                text = file.read()
            found = re.search(r"started successfully on port (\d+)", text)
            if found:
                return int(found[1])
            assert self.process.poll() is None and time.monotonic() < end, f"chromedriver did not start: {text}"
            time.sleep(0.05)

    def close(self):
        try:
            if self.session:
                self.call("DELETE", f"/session/{self.session}")
        except (OSError, AssertionError):
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, path, body=None):
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=2 * PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"chromedriver, {method} {path}: {error.read().decode(errors='replace')[:2000]}") from None

    def ask(self, method, path, body=None):
        return self.call(method, f"/session/{self.session}{path}", body)

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """The value of a function with this body, in the page."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script, what, *arguments):
        """Waits until it is true; returns it."""
        end = time.monotonic() + PATIENCE
        while not (result := self.run(script, *arguments)):
            assert time.monotonic() < end, f"not in time: {what}"
            time.sleep(0.1)
        return result

    def find(self, selector):
        return self.ask("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        """As a user: it has to be visible and not covered."""
        self.ask("POST", f"/element/{self.find(selector)}/click")

    def type(self, selector, text):
        self.ask("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def cdp(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self):
        """What the console has got since the last time: (level, message)."""
        return [(entry["level"], entry["message"]) for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def scheme(self, name):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def size(self, width, height, scale=1, mobile=False):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)

    def picture(self, path):
        """The whole page, as PNG."""
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
