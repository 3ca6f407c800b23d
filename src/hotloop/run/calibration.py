"""Measures the constants of this machine, in a process of its own: `python -m hotloop.run.calibration` prints them as JSON.

What lives here: one small measurement each, some tenths of a second. Invariant: never inside training; a constant whose library
is not installed is left out.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ..model.machine import NAMES

PART_S = 0.15


def best_ns(action: Callable[[], Any], calls: int) -> float:
    """Nanoseconds of a call, the least of several rounds: what others on the machine take is not the machine's."""
    least, end = float("inf"), time.perf_counter() + PART_S
    while time.perf_counter() < end or least == float("inf"):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            action()
        least = min(least, (time.perf_counter_ns() - begin) / calls)
    return least


def measure() -> dict[str, float]:
    found: dict[str, float] = {}
    for part in (_python, _arrays, _tensors, _threads, _pipes, _processes):
        try:
            found |= part()
        except Exception as error:  # a library that is not there, or forbids it
            print(f"{part.__name__.strip('_')}: {type(error).__name__}: {error}", file=sys.stderr)
    return {name: round(value, 3) for name, value in found.items() if name in NAMES}


def _python() -> dict[str, float]:
    def add(a: int, b: int) -> int:
        return a + b

    return {"call_ns": best_ns(lambda: [add(i, 1) for i in range(1000)], 5) / 1000}


def _arrays() -> dict[str, float]:
    import numpy as np

    small, large = np.ones(4, np.float32), np.ones(4 << 20, np.float32)
    target = np.empty_like(large)
    copied = best_ns(lambda: np.copyto(target, large), 1)
    return {"array_ns": best_ns(lambda: small + small, 200), "copy_gb_s": large.nbytes / copied}


def _tensors() -> dict[str, float]:
    import torch

    small, tracked = torch.ones(4), torch.ones(4, requires_grad=True)
    threads = torch.get_num_threads()

    def rate(size: int) -> float:
        a = torch.ones(size, size)
        return 2 * size**3 / best_ns(lambda: a @ a, 1)

    found = {"gemm_all_gflops": rate(512)}
    torch.set_num_threads(1)
    found |= {"gemm_gflops": rate(512), "gemm_small_gflops": rate(64)}
    found["dispatch_grad_ns"] = best_ns(lambda: tracked + small, 200)
    with torch.no_grad():
        found["dispatch_ns"] = best_ns(lambda: small + small, 200)
    torch.set_num_threads(threads)
    return found


def _threads() -> dict[str, float]:
    jobs: queue.SimpleQueue[object] = queue.SimpleQueue()
    done: queue.SimpleQueue[object] = queue.SimpleQueue()

    def work() -> None:
        while jobs.get() is not None:
            done.put(1)

    thread = threading.Thread(target=work)
    thread.start()

    def hand_over() -> None:
        jobs.put(1)
        done.get()

    took = best_ns(hand_over, 50) / 1000
    jobs.put(None)
    thread.join()
    return {"thread_us": took}


def _echo(pipe: Any) -> None:
    while (said := pipe.recv()) is not None:
        pipe.send(said)


def _pipes() -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_echo, args=(theirs,), daemon=True)
    process.start()
    said = bytes(1000)

    def exchange() -> None:
        ours.send(said)
        ours.recv()

    exchange()
    took = best_ns(exchange, 20) / 1000
    ours.send(None)
    process.join(5)
    return {"pipe_us": took}


def _processes() -> dict[str, float]:
    words = [sys.executable, "-S", "-c", ""]
    return {"process_ms": best_ns(lambda: subprocess.run(words, check=True), 1) / 1e6}


if __name__ == "__main__":
    print(json.dumps(measure()))
