"""A5: fork-safe, whoever forks. No hang, no span twice, the parent intact."""

from __future__ import annotations

import pytest

PROGRAM = """
import ctypes, os, sys, threading, time
import hotloop
from hotloop import profile
forks, how = {forks}, "{how}"
libc = ctypes.PyDLL(None)
SYS_FORK = 57
def fork():
    if how == "raw":                 # a fork that no Python hook sees
        return libc.syscall(SYS_FORK)
    return os.fork()
if how == "raw":
    # The child of a raw fork has the interpreter lock in the state it was in. Asked to hand it on, it would wait for a mutex
    # that a thread which is not there holds; that is Python's, not ours, so nobody asks.
    sys.setswitchinterval(1000)
path = hotloop.start()
stop = threading.Event()
def busy():
    while not stop.is_set():
        with profile("outer"):
            with profile("inner"): time.sleep(0.0001)
threads = [threading.Thread(target=busy, daemon=True) for _ in range(16)]
for t in threads: t.start()
with profile("open while forking"):
    for number in range(forks):
        pid = fork()
        if pid == 0:
            try:
                with profile("in child"): pass
                if how == "double":
                    again = os.fork()
                    if again == 0:
                        with profile("in grandchild"): pass
                        os._exit(0)
                    os.waitpid(again, 0)
                with profile("in child"): pass
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        # keep the folder small: check and drop the child's shard at once
        mine = [f for f in os.listdir(path / "shards") if f.startswith(f"{{pid}}-")]
        assert len(mine) == 1, mine
        if number % 50:
            os.unlink(path / "shards" / mine[0])
stop.set()
for t in threads: t.join()
hotloop.stop()
"""


@pytest.mark.parametrize("how", ["os", "raw", "double"])
@pytest.mark.parametrize("forks", [60, pytest.param(1000, marks=pytest.mark.full)])
def test_forks_from_a_process_of_many_threads(run_native, how, forks):
    done = run_native(PROGRAM.format(forks=forks, how=how), timeout=600)
    session, report = done.session, done.report
    main = session.shards[0]
    names = {main.label_of(n.path).name: n.count for n in main.nodes}
    assert "in child" not in names  # nothing of a child is in the parent's shard
    assert names["open while forking"] == 1
    assert main.attempted == main.recorded + main.dropped
    kept = -(-forks // 50)
    children = [s for s in session.shards[1:] if "in child" in {x.name for x in s.labels}]
    assert len(children) == kept
    for child in children:
        counts = {child.label_of(n.path).name: n.count for n in child.nodes if n.count}
        assert counts == {"in child": 2}
        assert child.parent_shard == main.id
        assert child.losses == {}
    if how == "double":
        assert next(o for o in report.operations if o.name == "in grandchild").calls == forks


def test_the_python_recorder_is_safe_under_os_fork(run):
    done = run(PROGRAM.format(forks=20, how="os"), timeout=900)
    main = done.session.shards[0]
    assert "in child" not in {main.label_of(n.path).name for n in main.nodes}
    assert done.operation("in child").calls == 2


def test_a_child_that_execs_another_program_is_no_trouble(run):
    done = run("""
        import subprocess, sys
        from hotloop import *
        start()
        with profile("outer"):
            subprocess.run([sys.executable, "-c", "print('child')"], check=True)
            subprocess.run([sys.executable, "-c", "import hotloop\\nwith hotloop.profile('joined'): pass"], check=True)
        stop()
    """)
    assert done.operation("joined").calls == 1
    assert len(done.session.processes) == 2
