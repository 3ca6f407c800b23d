"""Threads, tasks, generators, pools and processes, for real. Times are compared loosely; benchmarks/accuracy.py is strict."""

from __future__ import annotations

import json

import pytest

# Work and rest that say at the end how long they really took: a busy machine makes both longer.
TRUTH = """
import atexit, collections, json, time
taken = collections.Counter()
def spin(name, seconds):
    begin, end = time.perf_counter_ns(), time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    taken[name] += time.perf_counter_ns() - begin
def rest(name, seconds):
    begin = time.perf_counter_ns()
    time.sleep(seconds)
    taken[name] += time.perf_counter_ns() - begin
atexit.register(lambda: print(json.dumps(taken)))
"""


def near(done, value_ns, name, rel=0.35):
    """As long as the script itself says, within what a switch of threads between two clock readings can add."""
    return value_ns == pytest.approx(json.loads(done.stdout)[name], rel=rel)


def test_threads_add_up_to_their_lifetimes(run):
    done = run(
        TRUTH
        + """
import threading, time
from hotloop import *
start()
def work():
    for _ in range(5):
        with profile("env_step"): rest("env_step", 0.01)
with profile("rollout"):
    threads = [threading.Thread(target=work, name=f"env-{i}") for i in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
stop()
"""
    )
    report = done.report
    env = done.operation("env_step")
    assert env.calls == 40
    assert env.union_ns <= report.wall_ns
    assert near(done, env.busy_ns, "env_step")
    assert env.concurrency > 3
    assert near(done, env.waiting_ns, "env_step")
    assert report.quality.losses == {}
    shard = done.session.shards[0]
    for balance, track in zip(report.ledger.balances, shard.tracks, strict=True):
        assert balance.lifetime_ns == track.lifetime_ns
    assert sum(t.threads for t in shard.tracks) == 9


def test_ended_threads_leave_their_tracks_to_the_next(run):
    done = run("""
        import threading
        from hotloop import *
        start()
        def work():
            with profile("x"): pass
        for i in range(200):
            t = threading.Thread(target=work, name=f"worker-{i}"); t.start(); t.join()
        stop()
    """)
    shard = done.session.shards[0]
    assert done.operation("x").calls == 200
    assert len(shard.tracks) == 2
    assert [t.threads for t in shard.tracks] == [1, 200]


def test_waiting_for_a_lock_is_waiting(run_native):
    done = run_native("""
        import threading, time
        from hotloop import *
        start()
        lock, rlock = threading.Lock(), threading.RLock()
        def hold():
            with lock, rlock:
                ready.set(); time.sleep(0.2)
        for name in ("lock", "rlock"):
            ready = threading.Event()
            t = threading.Thread(target=hold); t.start(); ready.wait()
            with profile(f"needs {name}"):
                with (lock if name == "lock" else rlock): pass
            t.join()
        for _ in range(1000):     # uncontended: no trace
            with lock: pass
        stop()
    """)
    for name in ("needs lock", "needs rlock"):
        operation = done.operation(name)
        assert operation.waiting_ns > 0.15e9
        assert operation.self_ns < 0.05e9
    waits = done.operation("(waiting: lock)")
    assert waits.calls < 20


def test_known_waits_are_told_apart_from_work(run):
    done = run(
        TRUTH
        + """
import queue, select, socket, threading
from time import sleep           # imported by name before hotloop starts
from concurrent.futures import ThreadPoolExecutor
from hotloop import *
start()
with profile("sleeper"):
    time.sleep(0.05)
a, b = socket.socketpair()
threading.Timer(0.05, a.send, [b"x"]).start()
with profile("socket"): b.recv(1)
with profile("select"): select.select([b], [], [], 0.05)
q = queue.Queue()
threading.Timer(0.05, q.put, [1]).start()
with profile("queue"): q.get()
with ThreadPoolExecutor(1) as pool:
    with profile("future"): pool.submit(sleep, 0.05).result()
with profile("worker"): spin("worker", 0.05)
a.close(); b.close()
stop()
"""
    )
    for name in ("sleeper", "socket", "select", "queue", "future"):
        operation = done.operation(name)
        assert operation.waiting_ns > 0.7 * operation.busy_ns, name
    assert done.operation("worker").waiting_ns == 0
    assert done.operation("worker").self_ns > 0.04e9


def test_a_pools_work_hangs_below_the_span_that_submitted_it(run):
    done = run("""
        import time
        from concurrent.futures import ThreadPoolExecutor
        from hotloop import *
        start()
        def env(i):
            with profile("env_step"): time.sleep(0.005)
            return i
        with ThreadPoolExecutor(4) as pool:
            for _ in range(3):
                with profile("rollout"):
                    assert list(pool.map(env, range(8))) == list(range(8))
                time.sleep(0.02)
        stop()
    """)
    ledger = done.report.ledger
    branch = next(b for b in ledger.tree if b.name == "env_step")
    handed = ledger.tree[branch.parent]
    assert (handed.name, ledger.tree[handed.parent].name) == ("(handed over)", "rollout")
    assert branch.calls == 24
    workers = [b for b in ledger.balances if b.name.startswith("ThreadPool")]
    assert len(workers) == 4
    for worker in workers:
        assert worker.waiting_ns > 0.9 * (worker.lifetime_ns - worker.exclusive_ns)  # idle is waiting


def test_process_pools_hang_below_the_span_that_submitted_them(run):
    done = run("""
        import multiprocessing, sys
        from concurrent.futures import ProcessPoolExecutor
        from hotloop import *
        def env(i):
            with profile("env_step"): pass
            return i
        if __name__ == "__main__":
            start()
            for method in ("fork", "spawn"):
                with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
                    with profile("rollout"):
                        assert list(pool.map(env, range(6))) == list(range(6))
            stop()
    """)
    ledger = done.report.ledger
    branches = [b for b in ledger.tree if b.name == "env_step"]
    assert len(branches) == 1
    assert branches[0].calls == 12
    assert ledger.tree[ledger.tree[branches[0].parent].parent].name == "rollout"
    assert len(done.session.processes) >= 3
    assert {p.state for p in done.session.processes} == {"ended"}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_are_merged(run, method):
    done = run(f"""
        import multiprocessing as mp, time
        from hotloop import *
        def worker(i):
            for _ in range(10):
                with profile("env_step"): time.sleep(0.001)
                count("env_steps", 1)
        if __name__ == "__main__":
            start()
            with profile("rollout"):
                context = mp.get_context("{method}")
                workers = [context.Process(target=worker, args=(i,), name=f"env-{{i}}") for i in range(3)]
                for w in workers: w.start()
                for w in workers: w.join()
                assert all(w.exitcode == 0 for w in workers)
            stop()
    """)
    session, report = done.session, done.report
    assert done.operation("env_step").calls == 30
    assert report.counters["env_steps"] == 30
    assert sorted(p.name for p in session.processes if p.name) == ["env-0", "env-1", "env-2"]
    assert {p.state for p in session.processes} == {"ended"}
    env = done.operation("env_step")
    assert env.union_ns == env.union_high_ns  # all events were kept
    assert env.union_ns <= report.wall_ns


def test_across_processes_without_events_the_union_is_an_interval(run_native):
    done = run_native("""
        import os
        from hotloop import *
        start(log_events=0, ring_events=64, child_log_events=0, child_ring_events=64)
        pids = []
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                for _ in range(2000):
                    with profile("x"): sum(range(200))
                os._exit(0)
            pids.append(pid)
        for pid in pids: os.waitpid(pid, 0)
        stop()
    """)
    x = done.operation("x")
    assert x.calls == 6000
    assert x.union_ns < x.union_high_ns <= x.busy_ns
    assert x.union_high_ns <= done.report.wall_ns
    assert [p.state for p in done.session.processes].count("died") == 3


def test_asyncio_tasks_keep_their_own_stacks(run):
    done = run(
        TRUTH
        + """
import asyncio
from hotloop import *
async def request(i):
    with profile("request"):
        with profile("prepare"): spin("prepare", 0.002)
        await asyncio.sleep(0.4)
        with profile("parse"): spin("parse", 0.002)
async def main():
    with profile("gather"):
        await asyncio.gather(*(request(i) for i in range(20)))
start()
with profile("all"): asyncio.run(main())
stop()
"""
    )
    request = done.operation("request")
    assert request.calls == 20
    assert request.concurrency > 4
    assert request.union_ns <= done.report.wall_ns
    assert near(done, done.operation("prepare").self_ns, "prepare")
    assert near(done, done.operation("parse").self_ns, "parse")
    assert request.self_ns < done.operation("prepare").self_ns
    assert done.report.quality.losses == {}
    tree = done.report.ledger.tree
    for name in ("prepare", "parse"):
        branch = next(b for b in tree if b.name == name)
        assert tree[branch.parent].name == "request"
    balance = done.report.ledger.balances[0]
    assert balance.waiting_ns > 0.01e9  # the loop with no runnable task
    assert balance.lifetime_ns == done.report.wall_ns


def test_cancelled_and_destroyed_tasks_do_no_harm(run):
    done = run("""
        import asyncio, gc
        from hotloop import *
        async def forever():
            with profile("forever"):
                await asyncio.Event().wait()
        async def main():
            task = asyncio.create_task(forever()); await asyncio.sleep(0.01)
            task.cancel()
            try: await task
            except asyncio.CancelledError: pass
            async def short():
                with profile("times out"): await asyncio.sleep(10)
            try: await asyncio.wait_for(short(), 0.01)
            except asyncio.TimeoutError: pass
        start()
        asyncio.run(main())
        with profile("after"): pass
        stop()
    """)
    assert done.operation("forever").calls == 1
    assert done.operation("times out").calls == 1
    assert done.operation("after").calls == 1
    assert done.report.quality.open_spans == 0


def test_a_profiled_generator_is_busy_only_while_it_runs(run):
    done = run(
        TRUTH
        + """
from hotloop import *
start()
@profile_function("batches")
def batches():
    for _ in range(5):
        spin("batches", 0.01)
        yield 1
for _ in batches():
    with profile("train"): spin("train", 0.04)
stop()
"""
    )
    assert near(done, done.operation("batches").busy_ns, "batches")
    assert near(done, done.operation("train").busy_ns, "train")
    tree = done.report.ledger.tree
    assert tree[next(b for b in tree if b.name == "train").parent].name == "(root)"


def test_a_bare_with_held_across_a_yield_is_flagged(run):
    done = run("""
        from hotloop import *
        start()
        def batches():
            with profile("held"):
                yield 1
        list(batches())
        get_profiler().print_summary()
        stop()
    """)
    ((name, site),) = done.report.quality.held_across_yield.items()
    assert name == "held"
    assert site.endswith("train.py:5")
    assert "held across a yield" in done.stdout


def test_signal_handlers_may_open_spans(run):
    done = run("""
        import signal, time
        from hotloop import *
        start()
        fired = 0
        def handler(*_):
            global fired
            fired += 1
            with profile("handler"): pass
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        n = 0
        end = time.perf_counter() + 0.5
        while time.perf_counter() < end:
            with profile("a"):
                with profile("b"): n += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        stop()
        print(n, fired)
    """)
    spans, fired = map(int, done.stdout.split())
    assert fired > 100
    quality = done.report.quality
    dropped = quality.losses.get("dropped_reentrant", 0)
    assert done.operation("a").calls == done.operation("b").calls == spans
    assert done.operation("handler").calls + dropped == fired
    assert quality.attempted == quality.recorded + quality.dropped
    assert set(quality.losses) <= {"dropped_reentrant"}


def test_spans_at_exit_do_no_harm(run):
    done = run("""
        import atexit, threading, time
        from hotloop import *
        start()
        class Late:
            def __del__(self):
                with profile("in __del__"): pass
        late = Late()
        def goodbye():
            with profile("in atexit"): pass
        atexit.register(goodbye)
        def forever():
            while True:
                with profile("daemon"): pass
        threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.05)
        with profile("main"): pass
    """)
    assert done.operation("main").calls == 1
    assert done.operation("daemon").calls > 10
    assert done.session.processes[0].state == "ended"


def test_spans_start_no_thread_in_the_training_process(run):
    run("""
        import threading, os
        from hotloop import *
        start(lines=False)
        with profile("x", track_memory=True): pass
        step()
        assert threading.active_count() == 1
        assert len(os.listdir("/proc/self/task")) == 1
        get_profiler().print_summary(); stop()
        assert len(os.listdir("/proc/self/task")) == 1
    """)
