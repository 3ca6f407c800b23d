"""Reads damaged sessions one after the other, inside limits, and tells what came of them.

What lives here: a program, `python -m tests.faults.fuzz_worker CORPUS WHAT`, and `run_workers`, which starts several and adds
up what they say. WHAT is "mutations" or the name of a session of the corpus; the seeds, or the sizes that its first shard is
cut to, come by standard input.

Invariant: while a session is read, the worker's address space may grow by 256 MB and no more, its processor time by two
seconds (the machines are shared: wall time means little), and an audit hook of the interpreter sees every file opened and
everything executed: what is not reading that session is a fault.
"""

from __future__ import annotations

import argparse
import codecs
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.ma  # noqa: F401 (NumPy imports it when it is first needed)

import hotloop
from hotloop.store.schema import SHARD_SUFFIX

from .hostile import VIEWS, examine
from .mutations import Files, mutate

MEMORY_BYTES, SECONDS = 256 << 20, 2.0
SILENCE_S = 120  # longer without a word: the worker hangs where no signal reaches it
ROOT = Path(__file__).resolve().parents[2]
ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "unicode_escape")
OURS = os.path.dirname(hotloop.__file__)  # a report's style and script are read from the package


class TooSlow(BaseException):
    """Not an Exception, so that nothing on the way can take it for its own."""


def _too_slow(*_: object) -> None:
    raise TooSlow


class Guard:
    """Notes what the interpreter is asked to do while a session is read, unless it is reading that session."""

    def __init__(self) -> None:
        self.folder = ""
        self.seen: list[str] = []
        sys.addaudithook(self._hook)  # for good: there is no way to take one away

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        # Memory only: files come by their descriptor. A module's name is what 3.12 and later ask for when a class is made.
        if not self.folder or event in ("builtins.id", "mmap.__new__", "sys._getframemodulename"):
            return
        if event in ("open", "os.scandir", "os.listdir"):
            if isinstance(arguments[0], int):  # a descriptor that is open already
                return
            name = os.fsdecode(arguments[0])
            writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            inside = os.path.normpath(name).startswith((self.folder, OURS))
            if not writes and (inside or (name.startswith("/proc/") and name.endswith("/stat"))):
                return
        self.seen.append(f"{event} {arguments!r:.200}")

    @contextmanager
    def watch(self, folder: Path) -> Iterator[None]:
        self.folder, self.seen = str(folder), []
        try:
            yield
        finally:
            self.folder = ""
        assert not self.seen, self.seen[0]


def peak_bytes(set_back: bool = False) -> int:
    """The most memory the process has had since the kernel's mark was last set back."""
    if set_back:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def limit_growth(more_bytes: int) -> None:
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, resource.RLIM_INFINITY))


@dataclass
class Tally:
    """What came of a number of sessions; tallies add up."""

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")  # seconds
    largest: tuple[int, str] = (0, "")  # bytes
    faults: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.outcomes.total()

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.slowest = max(self.slowest, other.slowest)
        self.largest = max(self.largest, other.largest)
        self.faults += other.faults

    def to_line(self) -> str:
        return json.dumps([self.outcomes, self.slowest, self.largest, self.faults])

    @classmethod
    def from_line(cls, line: str) -> Tally:
        outcomes, slowest, largest, faults = json.loads(line)
        return cls(Counter(outcomes), tuple(slowest), tuple(largest), faults)


def examine_within_limits(guard: Guard, folder: Path, told: str, views: tuple[str, ...]) -> Tally:
    before = peak_bytes(set_back=True)
    begin = time.process_time()
    faults = []
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with guard.watch(folder):
            outcome = examine(folder, views)
    except (Exception, TooSlow):
        outcome = "fault"
        faults = [f"{told}\n{traceback.format_exc(limit=-8)}"]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    took = time.process_time() - begin
    return Tally(Counter([outcome]), (took, told), (peak_bytes() - before, told), faults)


# ---- cases ----


def read_files(folder: Path) -> Files:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def write_files(folder: Path, files: Files) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def damaged(corpus: dict[str, Files], folder: Path, seeds: Sequence[int]) -> Iterator[str]:
    """Puts one damaged session after the other into the folder."""
    names = sorted(corpus)
    for seed in seeds:
        name = names[seed % len(names)]
        files, told = mutate(corpus[name], seed)
        write_files(folder, files)
        yield f"{name}, seed {seed}: {told}"
        shutil.rmtree(folder)


def cut(files: Files, folder: Path, sizes: Sequence[int]) -> Iterator[str]:
    """Cuts the first shard shorter and shorter."""
    write_files(folder, files)
    shard = next(name for name in sorted(files) if name.endswith(SHARD_SUFFIX))
    for size in sorted(sizes, reverse=True):
        os.truncate(folder / shard, size)
        yield f"cut to {size} bytes"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("what")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    numbers = json.load(sys.stdin)
    signal.signal(signal.SIGPROF, _too_slow)
    for encoding in ENCODINGS:
        codecs.lookup(encoding)  # imported here, not while a session is read
    corpus = {}
    for path in sorted(options.corpus.iterdir()):
        (session,) = (path / "runs").iterdir()
        assert examine(session) == "read", path
        corpus[path.name] = read_files(session)
    guard = Guard()
    tally, told_at = Tally(), time.monotonic()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as scratch:
        folder = Path(scratch) / "session"
        views: Iterator[tuple[str, ...]]
        if options.what == "mutations":  # JSON always, and one more view each
            cases, views = damaged(corpus, folder, numbers), itertools.cycle([(view,) for view in VIEWS])
        else:
            cases, views = cut(corpus[options.what], folder, numbers), itertools.cycle([()])
        limit_growth(MEMORY_BYTES)
        for told, view in zip(cases, views, strict=False):
            one = examine_within_limits(guard, folder, told, view)
            if one.faults and options.keep:
                shutil.copytree(folder, options.keep / told.replace("/", "_")[:80], dirs_exist_ok=True)
            tally.add(one)
            if time.monotonic() - told_at > 1:
                print(tally.to_line(), flush=True)
                tally, told_at = Tally(), time.monotonic()
    print(tally.to_line(), flush=True)


# ---- several workers ----


def run_workers(
    corpus: Path, what: str, numbers: Sequence[int], workers: int, keep: Path | None = None,
    progress: Callable[[Tally], None] = lambda _: None,
) -> Tally:  # fmt: skip
    """Share the numbers out among worker processes and add up what they tell."""
    total, lock = Tally(), threading.Lock()

    def follow(mine: Sequence[int]) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.faults.fuzz_worker",
            str(corpus),
            what,
            *(["--keep", str(keep)] if keep else []),
        ]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin:
            json.dump(list(mine), process.stdin)
        other: list[str] = []
        with process.stdout:
            while line := _read_line(process):
                if line.startswith("["):
                    with lock:
                        total.add(Tally.from_line(line))
                        progress(total)
                else:
                    other.append(line)
        if process.wait() or other:
            with lock:
                total.faults.append(f"a worker ended with {process.returncode}: {''.join(other[-20:])}")

    threads = [threading.Thread(target=follow, args=(numbers[i::workers],)) for i in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total


def _read_line(process: subprocess.Popen[str]) -> str:
    """The next line; "" at the end, or when there was none for so long that the worker is beyond help."""
    assert process.stdout is not None
    watchdog = threading.Timer(SILENCE_S, process.kill)
    watchdog.start()
    try:
        return process.stdout.readline()
    finally:
        watchdog.cancel()


if __name__ == "__main__":
    main()
