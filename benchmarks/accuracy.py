"""A planted program whose true times are known: is every label's union, busy and exclusive time right?

    python benchmarks/accuracy.py [--python]

The truth is taken by hand: clock readings around each stretch, outside the span, added up by brute force. Own cost is tested
with spans so small that it would show: the truth there is the same work without spans.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if "--python" in sys.argv:
    os.environ["HOTLOOP_RECORDER"] = "python"

import hotloop
from benchmarks.measure import Table
from hotloop import profile, profile_function
from hotloop.analyse.diagnosis import diagnose
from hotloop.store.reader import read_session

clock = time.perf_counter_ns
Interval = tuple[int, int]
truth_open: dict[str, list[Interval]] = {}
truth_self: dict[str, int] = {}
lock = threading.Lock()


def spin(ns: int) -> int:
    """Keep the processor for `ns`, on whichever thread; answers how long it really took."""
    begin = clock()
    while clock() - begin < ns:
        pass
    return clock() - begin


def was_open(name: str, begin: int, end: int) -> None:
    truth_open.setdefault(name, []).append((begin, end))


def ran(name: str, ns: int) -> None:
    truth_self[name] = truth_self.get(name, 0) + ns


def union(intervals: list[Interval]) -> int:
    covered = reach = 0
    for begin, end in sorted(intervals):
        covered += max(0, end - max(begin, reach))
        reach = max(reach, end)
    return covered


def nested() -> None:
    for _ in range(60):
        a = clock()
        with profile("outer"):
            s = spin(2_000_000)
            b = clock()
            with profile("inner"):
                t = spin(3_000_000)
            c = clock()
            s += spin(1_000_000)
        was_open("outer", a, clock())
        was_open("inner", b, c)
        ran("outer", s)
        ran("inner", t)


def threads() -> None:
    """Eight threads that sleep and spin, as environments do that wait for a server and then compute."""

    def environment() -> None:
        mine: list[Interval] = []
        spun: list[Interval] = []
        for _ in range(20):
            a = clock()
            with profile("env_step"):
                time.sleep(0.01)
                b = clock()
                end = time.thread_time_ns() + 500_000
                while time.thread_time_ns() < end:
                    pass
                c = clock()
            mine.append((a, clock()))
            spun.append((b, c))
            time.sleep(0.004)
        with lock:
            truth_open.setdefault("env_step", []).extend(mine)
            ran("env_step", sum(e - b for b, e in spun))

    workers = [threading.Thread(target=environment) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def recursive(depth: int) -> int:
    with profile("recursive"):
        took = spin(500_000)
        return took + (recursive(depth - 1) if depth else 0)


def recursion() -> None:
    for _ in range(50):
        a = clock()
        took = recursive(4)
        was_open("recursive", a, clock())
        ran("recursive", took)
        spin(2_500_000)


class Pause:
    """A sleep that knows when its task let go of the loop and when it had it back: what comes before and after it is the task's
    own time, the making of the timer too."""

    left = back = 0

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[object, None, None]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(self.seconds, future.set_result, None)
        self.left = clock()
        yield from future
        self.back = clock()


async def task(number: int) -> None:
    for _ in range(4):
        pause = Pause(0.005 + 0.002 * (number % 7))
        a = clock()
        with profile("request"):
            spin(400_000)
            await pause
            spin(400_000)
            b = clock()
        was_open("request", a, b)
        ran("request", pause.left - a + b - pause.back)
        await asyncio.sleep(0.003)


async def tasks() -> None:
    await asyncio.gather(*(task(i) for i in range(20)))


@profile_function("batches")
def batches() -> object:
    for _ in range(60):
        a = clock()
        took = spin(1_000_000)
        was_open("batches", a, clock())
        ran("batches", took)
        yield took


def generators() -> None:
    for _ in batches():  # type: ignore[attr-defined]
        spin(4_000_000)


def tiny_work() -> None:
    x = 0
    for i in range(25):
        x += i


def with_spans(n: int) -> None:
    with profile("many"):
        for _ in range(n):
            with profile("tiny"):
                tiny_work()


def without_spans(n: int) -> int:
    begin = clock()
    for _ in range(n):
        tiny_work()
    return clock() - begin


def own_cost() -> int:
    """Spans of about a microsecond, where the recorder's own cost would show; the truth is the same loop without them."""
    n, bare = 5000, []
    for _ in range(40):
        bare.append(without_spans(n))
        with_spans(n)
    return round(statistics.mean(bare) * 40)


def main() -> int:
    folder = tempfile.mkdtemp()
    path = hotloop.start(out=folder)
    nested()
    threads()
    recursion()
    asyncio.run(tasks())
    generators()
    many = own_cost()
    hotloop.stop()
    report = diagnose(read_session(path))
    got = {o.name: o for o in report.operations}
    table = Table(
        f"accuracy, {'Python' if '--python' in sys.argv else 'native'} recorder: worst deviation from the truth is what counts"
    )
    bar = None if "--python" in sys.argv else 2  # the twin loses the interpreter lock inside its own code
    for name, intervals in truth_open.items():
        busy = sum(e - b for b, e in intervals)
        for what, true, measured in (
            ("busy", busy, got[name].busy_ns),
            ("union", union(intervals), got[name].union_ns),
            ("exclusive", truth_self[name], got[name].self_ns),
        ):
            table.add(
                f"{name}: {what} off the truth", abs(measured / true - 1) * 100, bar, "%", note=f"true {true / 1e6:.1f} ms"
            )
    table.add(
        "many × tiny: busy off the loop without spans",
        abs(got["many"].busy_ns / many - 1) * 100,
        bar,
        "%",
        note=f"true {many / 1e6:.1f} ms",
    )
    raw = sum(n.total_ns for s in read_session(path).shards for n in s.nodes if s.label_of(n.path).name == "many")
    table.add("  the same, own cost not subtracted", abs(raw / many - 1) * 100, None, "%")
    for balance in report.ledger.balances:
        parts = balance.exclusive_ns + balance.waiting_ns + balance.unattributed_ns + balance.profiler_ns
        assert parts == balance.lifetime_ns
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
