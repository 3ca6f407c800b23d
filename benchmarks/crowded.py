"""Are lines right where every core is busy?

    python benchmarks/crowded.py                alone, then beside two and four processes that never stop
    python benchmarks/crowded.py --before SRC   another version too: the `src` of its tree, built

A loop of three spans of known work: one of about a millisecond in a function of its own, two short ones. What is counted is
the share of the loop's samples in each function, against its share of the thread's processor time, which the script takes
with the thread's own clock in a run without HotLoop. Waiting for a core should be spread as the work is: a thread that calls
the kernel gives its core away there, so a recorder that does so at one place draws all waiting to it. Exit code 1: a function
is off by more than 15 points, or the line that calls the long span, which does nothing itself, has more than that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure import Table, clean_env  # noqa: E402

MOST_OFF = 15.0  # points
CROWDS = (0, 2, 4)
SCRIPT = """
import json, sys, time
import numpy as np

spent = {}

class Replay:
    def __init__(self):
        self.rows, self.weights = [], np.random.default_rng(1).random(150_000)
    def add(self, row):
        self.rows.append(row)
    def sample(self, n):
        return draw(self.weights, n)

class Env:
    def reset(self):
        return np.zeros(4)
    def step(self, action):
        move()
        return np.zeros(4), 1.0, False, {}

def timed(function):
    if "--truth" not in sys.argv:
        return function
    def around(*args):
        begin = time.thread_time_ns()
        result = function(*args)
        spent[function.__name__] = spent.get(function.__name__, 0) + time.thread_time_ns() - begin
        return result
    return around

@timed
def draw(weights, n):
    for _ in range(6):
        cut = np.cumsum(weights)
    return cut[:n]

@timed
def move():
    sum(range(4000))

@timed
def learn(rows):
    total = 0.0
    for row in range(6000):
        total += row * 0.5
    return total

def main():
    replay, env = Replay(), Env()
    state = env.reset()
    end = time.thread_time() + float(sys.argv[1])
    while time.thread_time() < end:
        for _ in range(20):
            state, reward, done, _ = env.step(0)
            replay.add(state)
            rows = replay.sample(64)
            learn(rows)

main()
if spent:
    print(json.dumps({name: ns / sum(spent.values()) for name, ns in spent.items()}))
"""
FUNCTIONS = ("draw", "move", "learn")
READ = """
import sys, json
from pathlib import Path
from hotloop.analyse.diagnosis import diagnose
from hotloop.store.reader import read_session
seen = {}
for line in diagnose(read_session(Path(sys.argv[1]))).main_lines:
    seen[line.function] = seen.get(line.function, 0) + line.samples
print(json.dumps(seen))
"""


def run(code: str, *arguments: str, cwd: str, src: str = "") -> str:
    env = clean_env() | ({"PYTHONPATH": src} if src else {}) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *([code] if code.endswith(".py") else ["-c", code]), *arguments], cwd=cwd, env=env,
                          capture_output=True, text=True, timeout=900)  # fmt: skip
    if done.returncode:
        raise SystemExit(f"a program failed: {done.stderr[-1500:]}")
    return done.stdout


def lines_of(folder: str, seconds: float, src: str) -> Counter[str]:
    session = Path(folder) / f"session-{os.urandom(4).hex()}"
    run(
        "import sys; from hotloop.cli.main import main; sys.exit(main())",
        "run", "--quiet", "--no-probe", "--out", str(session), "train.py", str(seconds), cwd=folder, src=src,
    )  # fmt: skip
    return Counter(json.loads(run(READ, str(session), cwd=folder, src=src)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, metavar="S", help="of processor time, each run (default 6)")
    parser.add_argument("--before", metavar="SRC", default="", help="another version's `src`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(SCRIPT)
        truth = json.loads(run("train.py", str(options.seconds), "--truth", cwd=folder))
        work = ", ".join(f"{name} {truth[name]:.0%}" for name in FUNCTIONS)
        table = Table(f"how far samples are from the work ({work})")
        for crowd in CROWDS:
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(crowd)]
            try:
                for version, src in (("", ""), *(((" (before)", options.before),) if options.before else ())):
                    seen = lines_of(folder, options.seconds, src)
                    shares = {name: seen[name] / seen.total() for name in FUNCTIONS}
                    rest = 1 - sum(shares.values())
                    off = max(rest, *(abs(shares[name] - truth[name]) for name in FUNCTIONS)) * 100
                    said = ", ".join(f"{name} {share:.0%}" for name, share in (shares | {"calling lines": rest}).items())
                    table.add(f"beside {crowd} busy processes{version}", off, None if version else MOST_OFF, "pts", note=said)
            finally:
                for process in busy:
                    process.kill()
                    process.wait()
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
