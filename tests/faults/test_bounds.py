"""A3: memory and disk stay within bounds, however long the run and however many threads it had."""

from __future__ import annotations

import pytest

MEASURE = """
import os, threading, time
import hotloop
from hotloop import profile, step, count

def anonymous_mb():
    with open("/proc/self/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Anonymous:")) / 1024

def mapped_mb():
    total = 0
    with open("/proc/self/maps") as f:
        for line in f:
            if ".hls" in line:
                begin, end = line.split()[0].split("-")
                total += int(end, 16) - int(begin, 16)
    return total / 2**20

def disk_mb(path):
    return sum(f.stat().st_blocks * 512 for f in path.rglob("*") if f.is_file()) / 2**20
"""


def run_spans(run, spans):
    done = run(
        MEASURE
        + f"""
path = hotloop.start()
def burst(n):
    for _ in range(n):
        with profile("env_step"): pass
        with profile("learn"): pass
burst(50_000); step()
before = anonymous_mb()
for _ in range({spans} // 200_000):
    burst(100_000); count("env_steps", 100_000); step()
print(anonymous_mb() - before, mapped_mb(), disk_mb(path))
hotloop.stop()
""",
        timeout=1200,
    )
    grown, mapped, disk = map(float, done.stdout.split())
    assert grown <= 8
    assert mapped <= 64
    assert disk <= 64
    assert done.report.quality.recorded == 100_000 + spans // 200_000 * 200_000


def test_a_million_spans_stay_within_bounds(run_native):
    run_spans(run_native, 1_000_000)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_hundred_million_spans_stay_within_bounds(run_native):
    run_spans(run_native, 100_000_000)


@pytest.mark.parametrize("threads", [1000, pytest.param(10_000, marks=pytest.mark.full)])
def test_short_lived_threads_leave_next_to_nothing(run, threads):
    done = run(
        MEASURE
        + f"""
path = hotloop.start()
def work():
    with profile("x"):
        with profile("y"): pass
def batch(n, prefix):
    for i in range(n):
        t = threading.Thread(target=work, name=f"{{prefix}}-{{i}}"); t.start(); t.join()
for _ in range(150_000): work()  # fill the first window of the timeline: its events are data, not what threads leave behind
batch(1000, "warm")
a, m, d = anonymous_mb(), mapped_mb(), disk_mb(path)
batch({threads}, "worker")
print(anonymous_mb() - a, mapped_mb() - m, disk_mb(path) - d)
hotloop.stop()
""",
        timeout=600,
    )
    grown, mapped, disk = map(float, done.stdout.split())
    assert grown <= 1
    assert mapped <= 1
    assert disk <= 1
    assert done.operation("y").calls == threads + 151_000


def test_threads_with_ever_new_names_are_bounded_too(run_native):
    done = run_native(
        MEASURE
        + """
hotloop.start()
def work():
    with profile("x"): pass
for i in range(2000):
    t = threading.Thread(target=work, name="".join(chr(97 + int(c)) for c in str(i))); t.start(); t.join()
print(mapped_mb())
hotloop.stop()
"""
    )
    assert float(done.stdout) < 8
    assert len(done.session.shards[0].tracks) <= 66
    assert done.operation("x").calls == 2000


@pytest.mark.parametrize("threads", [200, pytest.param(1000, marks=pytest.mark.full)])
def test_live_threads_stay_within_bounds(run_native, threads):
    done = run_native(
        MEASURE
        + f"""
path = hotloop.start()
ready, go = threading.Semaphore(0), threading.Event()
def work():
    with profile("outer"):
        with profile("inner"): ready.release(); go.wait()
threads = [threading.Thread(target=work) for _ in range({threads})]
for t in threads: t.start()
for _ in threads: ready.acquire()
print(mapped_mb(), disk_mb(path))
go.set()
for t in threads: t.join()
hotloop.stop()
""",
        timeout=600,
    )
    mapped, disk = map(float, done.stdout.split())
    assert mapped <= 64
    assert disk <= 64
    assert done.operation("inner").calls == threads
    assert done.report.quality.dropped == 0
    assert done.operation("outer").concurrency > 2  # on a busy machine threads start slowly


def test_ever_new_labels_stay_within_bounds(run_native):
    done = run_native(
        MEASURE
        + """
path = hotloop.start()
for i in range(60_000):
    with profile(f"episode-{i}"): pass
before = anonymous_mb()
for i in range(60_000, 200_000):
    with profile(f"episode-{i}"): pass
print(anonymous_mb() - before, mapped_mb(), disk_mb(path))
hotloop.stop()
"""
    )
    grown, mapped, disk = map(float, done.stdout.split())
    assert grown <= 8
    assert mapped <= 64
    assert disk <= 64
    quality = done.report.quality
    assert quality.recorded == 200_000
    assert quality.losses["label_overflow"] > 0
    assert (
        done.operation("(more labels)").calls + sum(o.calls for o in done.report.operations if o.name.startswith("episode-"))
        == 200_000
    )


def test_the_disk_cap_holds_for_a_session_of_many_processes(run_native):
    done = run_native(
        MEASURE
        + """
path = hotloop.start()
pids = []
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        for i in range(30_000):
            with profile(f"label-{i % 3000}"): pass
            if i % 100 == 0: step()
        os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
own = f"{os.getpid()}-"
sizes = {f.name: f.stat().st_size / 2**20 for f in path.glob("shards/*.hls")}
print(len(sizes), max(size for name, size in sizes.items() if not name.startswith(own)), sum(sizes.values()))
hotloop.stop()
"""
    )
    count, largest, total = map(float, done.stdout.split())
    assert count == 21
    assert largest <= 2.4  # of the children; the first process may take 28 MB
    assert total <= 64 + 4 * 5
    assert done.report.quality.recorded == 20 * 30_000
