"""What a span costs: against a bare pair of clock readings, against doing nothing, against its peers, on two threads.

    python benchmarks/span_cost.py [--peers] [--json FILE]

`--peers` also times torchrl's timeit, torch.profiler.record_function and an OpenTelemetry SDK span
(pip install -c constraints.txt torch torchrl opentelemetry-sdk).
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Table, median_ratio, rounds
from hotloop.record import _zone, calibrate, twin
from hotloop.record.recorder import DEFAULTS

clock = time.perf_counter_ns
null = contextlib.nullcontext()


def loop(n: int) -> None:
    for _ in range(n):
        pass


def pair(n: int) -> None:
    for _ in range(n):
        time.perf_counter_ns()
        time.perf_counter_ns()


def nothing(n: int) -> None:
    for _ in range(n):
        with null:
            pass


def bare_call(n: int) -> None:
    for _ in range(n):
        plain()


def plain() -> None:
    pass


def span_with(recorder: ModuleType) -> Callable[[int], None]:
    profile = recorder.profile

    def spans(n: int) -> None:
        for _ in range(n):
            with profile("x"):
                pass

    return spans


def call_with(recorder: ModuleType) -> Callable[[int], None]:
    profiled = recorder.wrap(recorder.profile("decorated"), plain)

    def calls(n: int) -> None:
        for _ in range(n):
            profiled()

    return calls


def record(recorder: ModuleType, folder: str) -> None:
    costs = calibrate.span_costs(recorder, DEFAULTS)
    recorder.open(**{**DEFAULTS, "directory": folder, "costs": costs})


def net(times: dict[str, list[float]], name: str, base: str = "loop") -> list[float]:
    return [a - b for a, b in zip(times[name], times[base], strict=True)]


def on_two_threads(function: Callable[[int], None], items: int) -> float:
    """Wall time over all items, with half of them on each of two threads at once."""
    barrier = threading.Barrier(3)

    def work() -> None:
        barrier.wait()
        function(items // 2)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    barrier.wait()
    begin = clock()
    for thread in threads:
        thread.join()
    return (clock() - begin) / items


def main() -> int:
    table = Table("span cost")
    with tempfile.TemporaryDirectory() as folder:
        off = rounds({"loop": (loop, 200_000), "nullcontext": (nothing, 200_000), "off": (span_with(_zone), 200_000)}, 15)
        record(_zone, folder)
        record(twin, folder)
        times = rounds(
            {
                "loop": (loop, 200_000), "pair": (pair, 200_000), "native": (span_with(_zone), 200_000),
                "call": (bare_call, 200_000), "native decorator": (call_with(_zone), 200_000),
                "twin": (span_with(twin), 20_000),
            },
            25,
        )  # fmt: skip
        base = net(times, "pair")
        value, note = median_ratio(net(times, "native"), base)
        table.add('with profile("x"), native / bare pair', value, 1.1, note=note)
        decorator = net(times, "native decorator", "call")
        value, note = median_ratio(decorator, base)
        table.add("decorator, native / bare pair", value, 0.85, note=note)
        value, note = median_ratio(net(off, "off"), net(off, "nullcontext"))
        table.add("disabled / premade nullcontext", value, 0.6, note=note)
        value, note = median_ratio(net(times, "twin"), base)
        table.add("Python recorder / bare pair", value, None, note=note)  # it is the plain reference: known, not limited
        table.add("bare pair", statistics.median(base), None, "ns")
        table.add("native span", statistics.median(net(times, "native")), None, "ns")
        two_threads(table)
        if "--peers" in sys.argv:
            peers(table)
        _zone.close()
        twin.close()
    return table.show()


def two_threads(table: Table) -> None:
    spans, ratios, control = span_with(_zone), [], []
    for _ in range(11):
        one = rounds({"pair": (pair, 400_000), "span": (spans, 400_000)}, 1)
        ratios.append(on_two_threads(spans, 400_000) / one["span"][0])
        control.append(on_two_threads(pair, 400_000) / one["pair"][0])
    table.add("two threads at once, wall ÷ all spans / one thread", statistics.median(ratios), 1.3)
    table.add("  bare pairs in two threads / one thread (control)", statistics.median(control), None)


def peers(table: Table) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from torch.profiler import record_function
    from torchrl._utils import timeit

    tracer = TracerProvider().get_tracer("bench")

    def torchrl_timeit(n: int) -> None:
        for _ in range(n):
            with timeit("x"):
                pass

    def torch_record_function(n: int) -> None:
        for _ in range(n):
            with record_function("x"):
                pass

    def otel(n: int) -> None:
        for _ in range(n):
            with tracer.start_as_current_span("x"):
                pass

    times = rounds(
        {
            "loop": (loop, 100_000), "native": (span_with(_zone), 100_000), "timeit": (torchrl_timeit, 20_000),
            "record_function": (torch_record_function, 5_000), "otel": (otel, 3_000),
        },
        15,
    )  # fmt: skip
    native = net(times, "native")
    for name, bar in (("timeit", 7), ("record_function", 50), ("otel", 120)):
        value, note = median_ratio(net(times, name), native)
        what = {
            "timeit": "torchrl timeit",
            "record_function": "torch.profiler.record_function (off)",
            "otel": "OpenTelemetry SDK span",
        }[name]
        table.add(f"{what} / native span", value, bar, above=True, note=note)


if __name__ == "__main__":
    sys.exit(main())
