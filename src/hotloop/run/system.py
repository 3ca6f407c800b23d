"""The sidecar: samples CPU, memory and GPU of a training process from outside, until that process ends.

    python -m hotloop.run.system PID SESSION [SECONDS]

What lives here: the process that `start(system=True)` starts beside the training. It appends one line per sample to
`SESSION/system.jsonl` and leaves when its standard input closes or the process is gone. The file is bounded: when it is full,
every second sample is dropped and the interval doubles. Invariant: it never touches the training process beyond reading /proc.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any

from ..store.system import MOST_SAMPLES, SYSTEM_FILE

MOST_SHARE = 0.005  # of a core, for what runs beside the training


class Sampler:
    """Samples a process and its descendants into a session's file, at an interval that doubles when the file is full."""

    def __init__(self, pid: int, session: str, interval_s: float = 0.5) -> None:
        import psutil

        self._path = os.path.join(session, SYSTEM_FILE)
        self._lines: list[str] = []
        self.interval_s = interval_s
        self._due = time.monotonic() + interval_s
        self._process: psutil.Process | None
        try:
            self._process = psutil.Process(pid)
            self._sample = _sampler(self._process)
        except psutil.Error:
            self._process = None

    def is_running(self) -> bool:
        import psutil

        try:
            return self._process is not None and self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def tick(self, now: float) -> None:
        """Take a sample if it is time."""
        if now >= self._due:
            begin = time.thread_time()
            self.take()
            self._due = now + max(self.interval_s, (time.thread_time() - begin) / MOST_SHARE)

    def take(self) -> None:
        taken = self._sample() if self._process is not None else None
        if taken is None:
            return
        self._lines.append(json.dumps(taken))
        try:
            if len(self._lines) < MOST_SAMPLES:
                with open(self._path, "a", encoding="ascii") as file:
                    file.write(self._lines[-1] + "\n")
            else:
                self._lines, self.interval_s = self._lines[1::2], self.interval_s * 2
                with open(self._path + ".new", "w", encoding="ascii") as file:
                    file.write("\n".join(self._lines) + "\n")
                os.replace(self._path + ".new", self._path)
        except OSError:  # the disk is full or the session was removed: nothing to be done from here
            self._process = None


def main(arguments: list[str]) -> int:
    sampler = Sampler(int(arguments[0]), arguments[1], float(arguments[2]) if len(arguments) > 2 else 0.5)
    going = True
    while going:
        going = not _closed(sampler.interval_s) and sampler.is_running()
        sampler.take()
    return 0


def _closed(seconds: float) -> bool:
    """Wait; True when the training process has closed our input."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and not os.read(sys.stdin.fileno(), 64)


def _sampler(process: Any) -> Callable[[], dict[str, Any] | None]:
    """A function that answers what was used since it was last called."""
    import psutil

    gpu = _gpu_reader()
    cores = psutil.cpu_count() or 1
    psutil.cpu_percent()  # the machine's counters, from now on
    before = {"at": time.time(), "cpu": _tree(process, psutil)[0]}

    def sample() -> dict[str, Any] | None:
        cpu, rss, count = _tree(process, psutil)
        if not count:
            return None
        now = time.time()
        taken = max(1e-3, now - before["at"])
        row = {
            "unix_s": round(now, 3),
            "seconds": round(taken, 3),
            "cpu_percent": round(max(0.0, cpu - before["cpu"]) / taken * 100, 1),  # 100: one core
            "rss_mb": round(rss / (1 << 20), 1),
            "processes": count,
            "machine_cpu_percent": psutil.cpu_percent(),
            "machine_memory_percent": psutil.virtual_memory().percent,
            "cores": cores,
            **gpu(),
        }
        before.update(at=now, cpu=cpu)
        return row

    return sample


def _tree(process: Any, psutil: Any) -> tuple[float, int, int]:
    """Processor seconds, resident bytes and number of the process and its descendants; not ours."""
    cpu, rss, count = 0.0, 0, 0
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        family = [process]
    for one in family:
        if one.pid == os.getpid():
            continue
        try:
            with one.oneshot():
                times = one.cpu_times()
                cpu += times.user + times.system
                rss += one.memory_info().rss
                count += 1
        except psutil.Error:
            continue
    return cpu, rss, count


def _gpu_reader() -> Callable[[], dict[str, Any]]:
    """Utilisation and memory of the first GPU, through NVML; nothing where there is none."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    except Exception:  # no package, no driver, no device
        return dict

    def read() -> dict[str, Any]:
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            return {
                "gpu_percent": float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
                "gpu_memory_mb": round(memory.used / (1 << 20), 1),
            }
        except Exception:  # the device went away
            return {}

    return read


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # Ctrl-C goes to the whole group; the training process decides when we end
        sys.exit(0)
