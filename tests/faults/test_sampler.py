"""The sampler reads stacks that change under its eyes: it may lose a sample, never the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

WILD = """
import random, sys, threading, time
from hotloop import start, stop, profile
start(name="wild", sample_us={interval})
until = time.monotonic() + {seconds}

def deep(n):
    if n: return deep(n - 1)
    return sum(i for i in range(50))

def generate(n):
    for i in range(n):
        yield from (j for j in range(3))

def made():
    space = dict()
    text = "def f(n):\\n    return f(n - 1) if n else 0\\nf(%d)" % random.randrange(20)
    exec(compile(text, "made%d.py" % random.randrange(10**6), "exec"), space)

def wild(seed):
    rng = random.Random(seed)
    while time.monotonic() < until:
        with profile("work %d" % rng.randrange(50)):
            kind = rng.randrange(4)
            if kind == 0: deep(rng.randrange(300))
            elif kind == 1: list(generate(20))
            elif kind == 2: made()
            else: sorted(range(200), key=lambda x: -x)

def churn():
    while time.monotonic() < until:
        threads = [threading.Thread(target=deep, args=(50,)) for _ in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()

threads = [threading.Thread(target=wild, args=(i,)) for i in range(3)] + [threading.Thread(target=churn)]
for t in threads: t.start()
for t in threads: t.join()
stop()
print("alive")
"""


@pytest.mark.parametrize(("interval", "seconds"), [(200, 3), pytest.param(50, 120, marks=pytest.mark.full)])
def test_wild_stacks_never_hurt_the_process(tmp_path, interval, seconds):
    code = WILD.replace("{interval}", str(interval)).replace("{seconds}", str(seconds))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
