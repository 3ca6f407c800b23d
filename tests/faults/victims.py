"""Programs that are killed. Run as `python victims.py PROGRAM ...` by the tests beside this file."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import struct
import sys
import threading
import time

import hotloop
from hotloop import profile


def counter_file(path: str, slots: int) -> mmap.mmap:
    """Shared memory that outlives the victim: how many spans each thread knows it has finished."""
    with open(path, "w+b") as file:
        file.truncate(max(4096, slots * 8))
        return mmap.mmap(file.fileno(), max(4096, slots * 8))


def spin(done: mmap.mmap, index: int, go: threading.Event) -> None:
    go.wait()
    view = memoryview(done).cast("Q")
    while True:
        with profile("a"), profile("b"):
            pass
        view[index] += 1


def victim(counters: str, threads: int) -> None:
    """Open and close spans on several threads until killed; says so on the counter file's last word when it runs."""
    sys.setswitchinterval(0.00002)
    done = counter_file(counters, threads + 1)
    go = threading.Event()
    names = [f"spinner-{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(threads)]
    for i in range(1, threads):
        threading.Thread(target=spin, args=(done, i, go), name=names[i], daemon=True).start()
    threading.current_thread().name = names[0]
    struct.pack_into("<Q", done, 8 * threads, 1)
    go.set()
    spin(done, 0, go)


def nursery(method: str, threads: int, folder: str) -> None:
    """A recording parent that makes a victim for each line it reads, and answers its pid."""
    hotloop.start(out=os.path.join(folder, "runs"), long_ns=0)  # no readings: the sums must close without them
    context = multiprocessing.get_context(method)
    with profile("nursery"):
        for line in sys.stdin:
            counters = line.strip()
            process = context.Process(target=victim, args=(counters, threads))
            process.start()
            print(process.pid, flush=True)
            process.join()
            print(process.exitcode, flush=True)
    hotloop.stop()


def die(how: str, folder: str) -> None:
    """Finish 1000 spans, leave one open, and die."""
    hotloop.start(out=os.path.join(folder, "runs"))
    for _ in range(1000):
        with profile("finished"):
            pass
    with profile("open at death"), profile("inner"):
        if how == "os._exit":
            os._exit(7)
        elif how == "segv":
            import ctypes

            ctypes.string_at(0)
        elif how == "abort":
            os.abort()
        elif how == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "sigterm":
            os.kill(os.getpid(), signal.SIGTERM)
        elif how == "oom":
            hog = []
            while True:
                hog.append(bytearray(1 << 20))
        elif how == "exception":
            raise RuntimeError("training failed")


def many(folder: str, workers: int) -> None:
    """Environment processes; the parent waits for a line, by which time some have been killed."""
    hotloop.start(out=os.path.join(folder, "runs"))
    context = multiprocessing.get_context("fork")
    stop = context.Event()

    def env(i: int) -> None:
        n = 0
        while not stop.is_set() or n < 50:
            with profile("env_step"):
                time.sleep(0.0005)
            n += 1

    processes = [context.Process(target=env, args=(i,), name=f"env-{i}") for i in range(workers)]
    for process in processes:
        process.start()
    print(*(p.pid for p in processes), flush=True)
    sys.stdin.readline()
    stop.set()
    for process in processes:
        process.join()
    hotloop.stop()


if __name__ == "__main__":
    program, *rest = sys.argv[1:]
    if program == "nursery":
        nursery(rest[0], int(rest[1]), rest[2])
    elif program == "die":
        die(rest[0], rest[1])
    elif program == "many":
        many(rest[0], int(rest[1]))
