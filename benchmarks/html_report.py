"""The HTML report of a session of 10⁶ events and 10⁴ labels: time to write, size, time until it answers in Chromium.

python benchmarks/html_report.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Table
from benchmarks.reader import MAKE

ROUNDS = 5
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900")
MARKS = """
const ready = performance.getEntriesByName("hotloop-ready")[0];
const shown = performance.getEntriesByType("paint").find((entry) => entry.name === "first-contentful-paint");
return ready ? [ready.startTime, shown ? shown.startTime : 0] : null;
"""
SORT = """
const begin = performance.now();
document.querySelectorAll("#operations-table th button")[3].click();
document.body.offsetHeight;
return performance.now() - begin;
"""


def open_in_chromium(page: Path) -> dict[str, float] | None:
    """Milliseconds from the start of the navigation to the mark, and for sorting 10⁴ rows; None without a browser."""
    binary, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return None
    if binary is None or chromedriver is None:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        best = {"ready": float("inf"), "sort": float("inf")}
        for _ in range(ROUNDS):
            driver.get("about:blank")
            driver.get(page.as_uri())
            while (marks := driver.execute_script(MARKS)) is None:
                time.sleep(0.01)
            best["ready"] = min(best["ready"], marks[0])
            best["sort"] = min(best["sort"], driver.execute_script(SORT))
        return best
    finally:
        driver.quit()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", MAKE, folder], capture_output=True, text=True, check=True)
        session, page = done.stdout.strip(), Path(folder) / "report.html"
        times = []
        for _ in range(ROUNDS):
            page.unlink(missing_ok=True)
            begin = time.perf_counter()
            command = [sys.executable, "-m", "hotloop", "report", session, "--html", str(page)]
            subprocess.run(command, capture_output=True, check=True)
            times.append(time.perf_counter() - begin)
        size = page.stat().st_size / 1e6
        browser = open_in_chromium(page)
    table = Table("the HTML report of 1,000,000 events and 10,000 labels")
    table.add(
        "`hotloop report --html`, from command to file", min(times), 3.0, "s", note=f"slowest of {ROUNDS}: {max(times):.2f} s"
    )
    table.add("size", size, 1.5, "MB")
    if browser is None:
        print("no chromium, chromedriver or selenium: the page was not opened")
    else:
        table.add("Chromium: navigation to interactive", browser["ready"] / 1000, 1.0, "s")
        table.add("Chromium: sorting 10,000 operations", browser["sort"] / 1000, None, "s")
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
