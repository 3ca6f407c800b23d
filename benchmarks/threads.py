"""Does the sampler tell what a thread does, and what does that cost?

    python benchmarks/threads.py                     4 s for each kind, on a quiet machine and beside busy processes
    python benchmarks/threads.py --seconds 1         shorter
    python benchmarks/threads.py --before SRC        the cost beside another version, too: the `src` of its tree, built
    (git worktree add /tmp/before REV; cd /tmp/before; python setup.py build_ext --inplace)

Threads whose state is known are planted one kind at a time, beside a main thread that sleeps: computing in Python, computing
in C without the interpreter, blocked in C where no hook reaches, blocked in a lock, asleep, two that want the interpreter at
once. What is counted is the share of their samples that are right. A thread that works and sleeps in turns must be at work
whenever it is seen at a line that computes: if asking for the state took so long that the thread moved on, or leaned to one
side, it would show. Beside it stands the kernel's own account of that thread (time on a core and ready for one), for
information: where cores are short the sampler itself comes late, with states or without, and sees more of what is idle. The
cost is the processor time of the sampler's thread for one look at nine threads. Linux and the native recorder only.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure import Table, clean_env  # noqa: E402
from hotloop.model import shard as m  # noqa: E402
from hotloop.record.recorder import DEFAULTS  # noqa: E402
from hotloop.store.shard import decode  # noqa: E402

try:
    from hotloop.record import _zone
except ImportError:
    _zone = None  # type: ignore[assignment]

CANNOT = 3
LEAST_RIGHT = 98.0  # percent
SAMPLE_US = 2000
AT_WORK = (m.RUNNING, m.WANTS_GIL)


# ---- what is planted: each runs until told to stop, and is found again by its name ----


def plant_python(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(i * i for i in range(2000))


def plant_c(stop: threading.Event) -> None:
    block = bytes(32 << 20)
    while not stop.is_set():
        hashlib.sha256(block)


def plant_pipe(stop: threading.Event) -> None:
    out, into = os.pipe()
    threading.Thread(target=lambda: (stop.wait(), os.write(into, b"x")), daemon=True).start()
    ctypes.CDLL(None).read(out, ctypes.create_string_buffer(1), 1)
    os.close(out)
    os.close(into)


def plant_lock(stop: threading.Event) -> None:
    stop.wait()


def plant_sleep(stop: threading.Event) -> None:
    while not stop.is_set():
        time.sleep(1)


def plant_pair(stop: threading.Event) -> None:
    other = threading.Thread(target=plant_python, args=(stop,))
    other.start()
    while not stop.is_set():
        sum(i * i for i in range(2000))
    other.join()


def plant_turns(stop: threading.Event) -> None:
    """Works and sleeps, 7 ms each."""
    while not stop.is_set():
        work_a_turn()
        time.sleep(0.007)


def work_a_turn() -> None:
    until = time.thread_time() + 0.007
    while time.thread_time() < until:
        pass


KINDS: dict[Callable[[threading.Event], None], tuple[str, tuple[int, ...]]] = {
    plant_python: ("computing in Python, alone: running", (m.RUNNING,)),
    plant_c: ("computing in C without the interpreter: running", (m.RUNNING,)),
    plant_pipe: ("blocked in C (read of a pipe by ctypes): blocked", (m.BLOCKED,)),
    plant_lock: ("blocked in a lock: blocked", (m.BLOCKED,)),
    plant_sleep: ("asleep: blocked", (m.BLOCKED,)),
    plant_pair: ("computing in Python, two at once: running or wanting", AT_WORK),
}


class Planted:
    """A recording with one such thread; afterwards what was seen of it."""

    def __init__(self, plant: Callable[[threading.Event], None], seconds: float) -> None:
        stop = threading.Event()
        thread = threading.Thread(target=plant, args=(stop,))
        _zone.open(**{**DEFAULTS, "clock": 0, "sample_us": SAMPLE_US})
        try:
            thread.start()
            began, before = time.monotonic(), self._account(thread)
            time.sleep(seconds)
            after, ended = self._account(thread), time.monotonic()
            shard = decode(_zone.snapshot())
        finally:
            stop.set()
            thread.join()
            _zone.close()
        self.ready_share = (after - before) / 1e9 / (ended - began)
        self.looks, self.due = shard.samples.ticks, round((ended - began) * 1e6 / SAMPLE_US)
        self.states, self.holds = self._read(shard, plant.__name__)
        self.working, _ = self._read(shard, work_a_turn.__name__)
        self.total = max(1, self.states.total())

    def _read(self, shard: m.Shard, function: str) -> tuple[Counter[int], int]:
        """Samples with this function in their stacks by state, and how many had the interpreter."""
        states: Counter[int] = Counter()
        holds = 0
        for sample in shard.samples.counts:
            if self._is_in(shard, sample, function):
                states[sample.state] += sample.times
                holds += sample.times * sample.holds_gil
        return states, holds

    @staticmethod
    def _account(thread: threading.Thread) -> int:
        """Nanoseconds on a core and ready for one, as the kernel counts them."""
        ran, waited, _ = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()
        return int(ran) + int(waited)

    @staticmethod
    def _is_in(shard: m.Shard, sample: m.Sample, function: str) -> bool:
        stack = sample.stack
        while stack >= 0:
            stack, place = shard.samples.stacks[stack]
            if shard.samples.places[place].function == function:
                return True
        return False

    def percent(self, states: tuple[int, ...]) -> float:
        return 100 * sum(self.states[state] for state in states) / self.total


def add_states(table: Table, where: str, seconds: float) -> None:
    for plant, (what, right) in KINDS.items():
        seen = Planted(plant, seconds)
        table.add(f"{where}, {what}", seen.percent(right), LEAST_RIGHT, "%", above=True, note=f"{seen.total:,} samples")
        if plant in (plant_python, plant_c):
            held = 100 * seen.holds / seen.total
            share, what = (held, "has") if plant is plant_python else (100 - held, "has not")
            table.add(f"{where}, the same: {what} the interpreter", share, LEAST_RIGHT, "%", above=True)
    seen = Planted(plant_turns, 2 * seconds)
    working = seen.working.total()
    right = 100 * sum(seen.working[state] for state in AT_WORK) / max(1, working)
    what = f"{where}, in turns, where it computes: running or wanting"
    table.add(what, right, LEAST_RIGHT, "%", above=True, note=f"{working:,} samples")
    note = f"{100 * seen.ready_share:.1f} % by the kernel's account; {seen.looks:,} looks of {seen.due:,} due"
    table.add(f"{where}, in turns: share seen at work", seen.percent(AT_WORK), None, "%", note=note)


# ---- the cost ----

COST = """
import json, os, sys, threading, time
from hotloop.record import _zone
from hotloop.record.recorder import DEFAULTS
from hotloop.store.shard import decode
ticks_ns = lambda tid: time.clock_gettime_ns(~tid << 3 | 6)
stop = threading.Event()
def deep(n, then): return deep(n - 1, then) if n else then()
def spin():
    while not stop.is_set(): sum(range(100))
threads = [threading.Thread(target=deep, args=(10, stop.wait)) for _ in range(5)]
threads += [threading.Thread(target=deep, args=(10, lambda: stop.wait(60))) for _ in range(2)]
threads += [threading.Thread(target=deep, args=(20, spin)) for _ in range(int(sys.argv[2]))]
for t in threads: t.start()
before = set(os.listdir("/proc/self/task"))
_zone.open(**{**DEFAULTS, "clock": 0, "sample_us": 1000})
(tid,) = {int(t) for t in set(os.listdir("/proc/self/task")) - before}
time.sleep(0.2)
first, ns = decode(_zone.snapshot()).samples.ticks, ticks_ns(tid)
time.sleep(float(sys.argv[1]))
used, last = ticks_ns(tid) - ns, decode(_zone.snapshot()).samples.ticks
_zone.close()
stop.set()
print(json.dumps(used / (last - first) / 1000))
"""


def cost_us(src: Path, seconds: float, spinning: int) -> float:
    """Processor time of one look at eight threads and more: seven blocked, the main one asleep, and these at work."""
    env = {**clean_env(), "PYTHONPATH": str(src)}
    command = [sys.executable, "-c", COST, str(seconds), str(spinning)]
    return float(json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout))


def add_cost(table: Table, before: Path | None, seconds: float, rounds: int) -> None:
    for spinning in (1, 2):
        now: list[float] = []
        then: list[float] = []
        for _ in range(rounds):
            if before is not None:
                then.append(cost_us(before, seconds, spinning))
            now.append(cost_us(ROOT / "src", seconds, spinning))
        what = f"a look at {8 + spinning} threads, {spinning} at work"
        core = f"{statistics.median(now) * 100 / 1e4:.2f} % of a core at 100 looks a second"
        table.add(what, statistics.median(now), None, "µs", note=core)
        if then:
            table.add(f"{what}: beside the earlier version", statistics.median(now) / statistics.median(then), 1.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4, help="for each kind of thread")
    parser.add_argument("--before", type=Path, metavar="SRC", help="the src folder of an earlier version")
    parser.add_argument("--rounds", type=int, default=5, help="of the cost")
    parser.add_argument("--json", metavar="FILE", help="write the table")
    arguments = parser.parse_args()
    if _zone is None or not os.path.isdir("/proc/self/task"):
        print("needs Linux and the C extension")
        return CANNOT
    table = Table("What threads do, as the sampler sees it")
    add_states(table, "quiet", arguments.seconds)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(len(os.sched_getaffinity(0)))]
    try:
        add_states(table, "busy", arguments.seconds)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    add_cost(table, arguments.before, arguments.seconds / 2, arguments.rounds)
    return table.show()


if __name__ == "__main__":
    raise SystemExit(main())
