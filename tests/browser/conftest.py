"""A real Chromium, sessions to show in it, and a page that tells on everything it should not do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from hotloop.analyse.diagnosis import Diagnosis, diagnose
from hotloop.model.session import SessionData
from hotloop.present.html import html_bytes
from hotloop.store.reader import read_session

# Labels as an attacker, or an unlucky user, would choose them. The file itself stays readable ASCII.
PAYLOADS = (
    "<script>window.pwned=1;alert(1)</script>",
    "</script><script>window.pwned=1;alert(1)</script>",
    "</SCRIPT ><iframe srcdoc='<script>parent.pwned=1</script>'>",
    "<!--",
    "<!--<script>",
    "--><script>window.pwned=1</script>",
    "]]><script>window.pwned=1</script>",
    '<img src=x onerror="window.pwned=1;alert(1)">',
    '"><svg onload="window.pwned=1;alert(1)">',
    "' onmouseover='window.pwned=1;alert(1)' x='",
    "javascript:window.pwned=1",
    "</style><style>*{display:none}</style>",
    "</title><script>window.pwned=1</script>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<a href='javascript:window.pwned=1' autofocus onfocus='window.pwned=1'>x</a>",
    "url(https://evil.example/x.png)",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "\\u003cscript\\u003ewindow.pwned=1\\u003c/script\\u003e",
    "{{constructor.constructor('window.pwned=1')()}} ${window.pwned=1} #{7*7} <%= 7*7 %>",
    "%%data%%", "%%script%%", "__proto__", "constructor", "toString",
    "\x1b[31mred\x1b[0m\x07", "\u202egpj.exe", "a\u2066b\u2069\u200bc", "nul\x00byte", "line\u2028break\u2029\r\n",
    "\ud800lone", "x\udfffy", "", "   ", "a/b/c", "\u00e9\u6f22\u5b57\U0001f3b2",
    "\u0645\u0631\u062d\u0628\u0627", "Z\u0335\u0321a\u0335l\u0335",
    "m" * 1_000_000,
)  # fmt: skip

# Runs before the page does, and writes down whatever a report must never do.
WATCH = """
window.seen = [];
for (const name of ["alert", "confirm", "prompt", "open", "print", "fetch"]) window[name] = () => window.seen.push(name);
addEventListener("error", (event) => window.seen.push("error: " + event.message), true);
addEventListener("unhandledrejection", (event) => window.seen.push("rejection: " + event.reason));
document.addEventListener("securitypolicyviolation", (event) => window.seen.push("policy: " + event.violatedDirective));
"""


@dataclass(frozen=True)
class Shown:
    """A session and the page made of it."""

    session: SessionData
    report: Diagnosis
    html: bytes
    file: Path

    @property
    def data(self) -> dict[str, Any]:
        text = self.html.decode()
        begin = text.index('<script type="application/json" id="data">') + len('<script type="application/json" id="data">')
        return json.loads(text[begin : text.index("</script>", begin)])


def show(session: SessionData, folder: Path) -> Shown:
    report = diagnose(session)
    html = html_bytes(report)
    file = folder / "report.html"
    file.write_bytes(html)
    return Shown(session, report, html, file)


def record(folder: Path, code: str, check: bool = True) -> SessionData:
    """Run a script that records into `runs`."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(code))
    subprocess.run([sys.executable, str(script)], cwd=folder, check=check, capture_output=True, timeout=900)
    (only,) = (folder / "runs").iterdir()
    return read_session(only)


TRAINING = """
    import multiprocessing, threading, time
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    import hotloop
    from hotloop import count, profile, step

    def simulate(n):
        ALL.wait()  # each worker takes one, however late it is
        with profile("worker"):
            with profile("physics"):
                sum(range(30_000 * n))
            time.sleep(0.001)

    def meet(both):  # a pool starts its second worker only while the first has something to do
        global ALL
        ALL = both
        both.wait()

    def main():
        processes, threads = multiprocessing.Barrier(2), threading.Barrier(2)

        def load(numbers):
            threads.wait()
            return sum(numbers)

        with (
            ProcessPoolExecutor(2, initializer=meet, initargs=(processes,)) as pool,
            ThreadPoolExecutor(2, initializer=threads.wait) as loaders,
        ):
            for i in range(30):
                with profile("collect"):
                    with profile("env_step"):
                        list(pool.map(simulate, [1, 2]))
                    count("env_steps", 8)
                with profile("train"):
                    list(loaders.map(load, [range(9_000)] * 2))
                    with profile("backward"):
                        sum(range(20_000 + 1_000 * i))
                    with profile("optimizer", track_memory=True):
                        sum(range(4_000))
                step()

    if __name__ == "__main__":
        hotloop.start(name="ppo", out="runs")
        main()
        hotloop.stop()
"""


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Several processes and threads, iterations, waits."""
    folder = tmp_path_factory.mktemp("training")
    return show(record(folder, TRAINING), folder)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Every payload as a label, a thread's name and a counter; the session's name is one too."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "payloads.json").write_text(json.dumps(PAYLOADS))
    session = record(
        folder,
        """
        import json, threading
        import hotloop
        from hotloop import count, profile, step

        payloads = json.load(open("payloads.json"))
        hotloop.start(out="runs")
        def use(name):
            with profile(name):
                with profile("below " + name[:80]):
                    sum(range(500))
        for i in range(25):
            for name in payloads:
                use(name)
            count(payloads[i % 5], 3)
            step()
        for name in payloads[:12]:
            thread = threading.Thread(target=use, args=(name,), name=name)
            thread.start()
            thread.join()
        hotloop.stop()
        """,
    )
    session = SessionData(
        session.path,
        {**session.meta, "name": PAYLOADS[1], "command": [PAYLOADS[0], PAYLOADS[7]], "host": {PAYLOADS[2]: PAYLOADS[8]}},
        session.shards,
        session.processes,
        session.events,
        (f"shard {PAYLOADS[3]}{PAYLOADS[5]} is odd",),
    )
    return show(session, folder)


@dataclass(frozen=True)
class Browser:
    driver: Any

    def open(self, file: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(file.as_uri())
        self.wait("performance.getEntriesByName('hotloop-ready').length === 1")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 20, 0.02).until(lambda driver: driver.execute_script(f"return Boolean({condition})"))

    def settle(self) -> None:
        """Until what was asked for has been drawn and its events have been told."""
        self.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return self.run("return Array.from(document.querySelectorAll(arguments[0]), (e) => e.textContent)", selector)

    def hover(self, element: Any, dx: int = 0, dy: int = 0) -> None:
        from selenium.webdriver import ActionChains

        self.run("arguments[0].scrollIntoView({ block: 'center' })", element)
        self.settle()  # scrolling hides what was shown
        ActionChains(self.driver).move_to_element_with_offset(element, dx, dy).perform()

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def misdeeds(self) -> list[str]:
        """What the page did since it was opened that it must not do; requests other than for itself included."""
        said = [entry["message"] for entry in self.driver.get_log("browser")]
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        own = self.driver.current_url.partition("#")[0]
        dialogs = [e["method"] for e in events if e["method"] == "Page.javascriptDialogOpening"]
        return [*said, *dialogs, *(url for url in asked if url.partition("#")[0] != own), *self.run("return window.seen")]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if binary is None or chromedriver is None:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.set_capability("unhandledPromptBehavior", "ignore")
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def opened(chromium: Browser, training: Shown) -> Callable[..., Browser]:
    """Opens the training session's page; whatever the test does with it, the page must behave."""

    def open_page(**how: Any) -> Browser:
        chromium.open(training.file, **how)
        return chromium

    return open_page


@pytest.fixture(autouse=True)
def behave(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test in the browser: no error, no refused action, no dialog, no request."""
    yield
    if "opened" in request.fixturenames:
        assert request.getfixturevalue("chromium").misdeeds() == []
