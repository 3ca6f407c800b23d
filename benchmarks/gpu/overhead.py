"""Slow-down of small PPO and DQN loops on the GPU with device spans on, in ABBA pairs. Bar: geometric mean ≤ 1.03.

    python benchmarks/gpu/overhead.py [PAIRS] [DQN|PPO] [--parts]

torch.profiler over the loop is run in the same way for comparison, and bare against bare as a control. Importing torch and
CUDA takes longer than the loop, so processes are started ahead, warm up and wait for their turn; one runs at a time, and times
its own updates. Each pair is two processes that take turns, ABBA. `--parts` shows what hooks and lines cost each for
themselves.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.gpu.loops import DQN, PPO
from benchmarks.gpu.runs import need_cuda, show
from benchmarks.measure import clean_env

UPDATES = 120  # of one turn
TURNS = 16  # of a pair: ABBA; many short ones, since two processes drift apart
TIMED = f"""
train(200); torch.cuda.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    begin = time.perf_counter(); train({UPDATES}); torch.cuda.synchronize()
    print(time.perf_counter() - begin, flush=True)
"""
TRACED = TIMED.replace("for line", "from torch.profiler import profile as trace\nfor line").replace(
    f"train({UPDATES});", f"t = trace(); t.start(); train({UPDATES}); t.stop();"
)
PARTS = {
    "lines alone": ("--no-hooks",),
    "hooks alone": ("--lines", "off"),
    "neither": ("--no-hooks", "--lines", "off"),
}
AT_ONCE = 12  # processes that wait for their turn


class Runner:
    """One process that has warmed up and waits."""

    def __init__(self, folder: Path, loop: str, which: str, number: int) -> None:
        script = folder / f"{which.split()[0]}.py"
        script.write_text(loop + (TRACED if which == "torch.profiler" else TIMED))
        options = () if which == "hotloop" else PARTS.get(which)
        session = ("--out", str(folder / f"session-{number}"))
        hooked = ["-m", "hotloop", "run", "--quiet", *session, *options] if options is not None else []
        self._process = subprocess.Popen(
            [sys.executable, *hooked, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=clean_env(), cwd=folder,
        )  # fmt: skip

    def wait(self) -> None:
        while True:
            line = self._process.stdout.readline()
            if line.strip() == "ready":
                return
            if not line:
                raise SystemExit("a process ended before its turn")

    def run(self) -> float:
        """Seconds of one turn."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def ratios(loop: str, which: str, pairs: int) -> list[float]:
    """`which` over bare, pair by pair; every process takes part in one pair."""
    found: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        while len(found) < pairs:
            count = min(AT_ONCE // 2, pairs - len(found))
            runners = [(Runner(Path(folder), loop, "bare", 0), Runner(Path(folder), loop, which, i)) for i in range(count)]
            for pair in runners:
                for runner in pair:
                    runner.wait()
            for bare, other in runners:
                order = [other, bare] if len(found) % 2 else [bare, other]
                took = {bare: 0.0, other: 0.0}
                for turn in range(TURNS):
                    runner = order[turn % 4 in (1, 2)]
                    took[runner] += runner.run()
                found.append(took[other] / took[bare])
            for pair in runners:
                for runner in pair:
                    runner.end()
            for session in Path(folder).glob("session-*"):
                subprocess.run(["rm", "-rf", str(session)], check=True)
    return found


def mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def interval(values: list[float]) -> str:
    """95 %, by Student's t over the logarithms."""
    from scipy import stats

    logs = [math.log(v) for v in values]
    if len(logs) < 2:
        return ""
    half = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(statistics.fmean(logs) - half):.3f}-{math.exp(statistics.fmean(logs) + half):.3f}"


def main() -> int:
    need_cuda()
    arguments = [a for a in sys.argv[1:] if not a.startswith("-")]
    pairs = next((int(a) for a in arguments if a.isdigit()), 10)
    wanted = [a for a in arguments if not a.isdigit()] or ["DQN", "PPO"]
    ok = []
    for name in wanted:
        loop = {"DQN": DQN, "PPO": PPO}[name]
        found = ratios(loop, "hotloop", pairs)
        ok.append(show(f"{name}: hotloop run / bare, {pairs} pairs, 95 %: {interval(found)}", mean(found), 1.03, False, "×"))
        others = ["bare again", "torch.profiler", *(PARTS if "--parts" in sys.argv else ())]
        for other in others:
            found = ratios(loop, other, min(pairs, 6 if other == "bare again" else 1))
            print(f"       {name}: {other} / bare: {mean(found):.3f} × ({interval(found)})")
    return int(not all(ok))


if __name__ == "__main__":
    raise SystemExit(main())
