"""What an instruction costs each time, from how often it ran at most; what is done with it, and the causes that were made
with it: bytes and arithmetic in code without a loop, objects made anew, whole pasts, what calls do besides waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotloop.analyse.findings.residuals import PLACE, interval
from hotloop.analyse.limits import verdict
from hotloop.model.mechanism import COMPUTING, DISPATCHING, MOVING
from hotloop.model.phase import COLLECT
from hotloop.model.probe import Curve, Point, Probes

from .recordings import BLOCKS, CALLS, COMPUTES, RUNS, Seen, diagnose_script

SCRIPT = """
    def main():                                         # 2
        for _ in range(100):
            env.step(0)
            traces *= decay
            table = np.stack(seen)
            for k in range(9):
                other *= decay
            shares = np.clip(shares, 0, 1)
            make(5)
            loss.backward()
            play(net, words)
            water["gust"]
    def make(n):                                        # 14
        return Net(n)
"""
STEP = Seen(("main:4", "gymnasium/core.py:10"), 300, "collect/env_step", calls=1000)
BACK = Seen(("main:11", "torch/autograd/graph.py:10"), 300, "learn/backward", CALLS, calls=10)
MAKE = Seen(("main:10", "make:15", "Linear.__init__@torch/nn/modules/linear.py:9", "orthogonal_@torch/nn/init.py:3"), 400)
ROWS = Probes((Curve("Net", "", COLLECT, 8, 8.0, 50, False, 0, (Point(8, 80e3, 0.0), Point(16, 150e3, 0.0))),))


def spent(*seen: Seen, script: str = SCRIPT) -> dict[str, float]:
    """Of the line that holds most, by mechanism."""
    line = diagnose_script(script, [STEP, BACK, *seen]).main_lines[0]
    return {name: part / line.samples for name, part in line.spent}


def test_an_operator_that_takes_long_each_time_computes():
    """400 ms over 1,000 steps: 0.4 ms each, of which a small one takes 2 us."""
    assert spent(Seen(("main:5:traces *= decay",), 400, did=CALLS)) == {
        COMPUTING: pytest.approx(0.995),
        DISPATCHING: pytest.approx(0.005),
    }


def test_packing_that_takes_long_each_time_moves():
    assert spent(Seen(("main:6:np.stack(seen)", "stack@numpy/_core/shape_base.py:9"), 400, did=CALLS))[MOVING] > 0.98


@pytest.mark.parametrize(
    "seen",
    [
        Seen(("main:8:other *= decay",), 400, did=CALLS),  # in a loop of its own: nobody knows how often it ran
        Seen(("main:9:np.clip(shares, 0, 1)",), 400, did=CALLS),  # a call: how much of it is fixed is not known
        Seen(("make.<locals>.<lambda>:5:traces *= decay",), 400, did=CALLS),
        Seen(("main:5", "main:5:traces *= decay"), 400, did=CALLS),  # it calls itself
        Seen(("main:4", "main:5:traces *= decay"), 400, "collect/env_step", CALLS, calls=400_000),  # 1 us in each of so many
        Seen(("main:5",), 400, did=CALLS),  # Python 3.10 does not say which of the line's calls it is in
    ],
    ids=["loop", "call", "lambda", "recursion", "often", "unknown"],
)
def test_where_one_time_may_cost_little_it_is_said_to_be_paid_per_call(seen):
    assert spent(seen) == {DISPATCHING: 1.0}


def test_networks_made_anew_are_a_cause_if_there_were_several():
    first = diagnose_script(SCRIPT, [STEP, BACK, MAKE], **{"~networks_dropped": 40}).findings[0]
    assert (first.cause, first.function, first.mechanism) == ("setup-in-loop", "make", "starting")
    assert first.share == pytest.approx(0.4)
    assert "makes new networks" in first.title
    assert "40 networks" in first.evidence[0]
    for facts in ({}, {"~networks_dropped": 2}):
        assert "setup-in-loop" not in [f.cause for f in diagnose_script(SCRIPT, [STEP, BACK, MAKE], **facts).findings]


OBJECTS = """
    class Level:
        def __init__(self, size):                       # 3
            self.walls = carve(size)
    class Node:
        def __init__(self, parent):                     # 6
            self.prior = parent.prior
    def carve(size):
        return flood(size)                              # 9
    def main():
        for _ in range(100):
            env.step(0)                                 # 12
            level = Level(9)
            for leaf in leaves:
                tree.append(Node(leaf))
            loss.backward()                             # 16
"""
EVENTS = [
    Seen(("main:12", "gymnasium/core.py:10"), 300, "collect/env_step", calls=1000),
    Seen(("main:16", "torch/autograd/graph.py:10"), 300, "learn/backward", CALLS, calls=10),
]
LEVELS = Seen(("main:13", "Level.__init__:4", "carve:9"), 400)


def test_objects_of_ones_own_that_are_made_anew_are_told_by_what_they_are():
    first = diagnose_script(OBJECTS, [*EVENTS, LEVELS], iterations=[100] * 10).findings[0]
    assert (first.cause, first.mechanism) == ("setup-in-loop", "starting")
    assert first.function in ("Level.__init__", "carve")
    assert first.share == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("seen", "iterations"),
    [
        (LEVELS, [100] * 3),  # too few
        (LEVELS, [500, *[50] * 10]),  # one of them may have been all of it
        (LEVELS, [50] * 10),  # it may have been before the first
        (Seen(("main:15", "Node.__init__:7"), 400), [100] * 10),  # nodes of a search are made in a loop
    ],
    ids=["few", "one", "before", "items"],
)
def test_objects_that_are_made_once_or_as_items_are_no_setting_up(seen, iterations):
    causes = [f.cause for f in diagnose_script(OBJECTS, [*EVENTS, seen], iterations=iterations).findings]
    assert causes and "setup-in-loop" not in causes


def test_compiling_anew_is_taken_from_the_evaluation_it_is_done_for():
    script = Seen(("main:10", "make:15", "script@torch/jit/_script.py:9"), 400, "eval/evaluate", calls=20)
    plays = Seen(("main:10", "make:15", "gymnasium/core.py:10"), 300, "eval/evaluate > eval/env_step", calls=20)
    found = diagnose_script(SCRIPT, [STEP, BACK, script, plays], **{"~compilations": 20}).findings
    assert [f.cause for f in found[:2]] == ["setup-in-loop", "eval-heavy"]
    assert found[0].share == pytest.approx(400 / 1300)
    assert found[1].share == pytest.approx(300 / 1300)


def past(longer: int, looked: int = 90, length: int = 30) -> dict[str, int]:
    return {"~collect_calls_followed": looked, "~collect_calls_longer": longer, "~collect_length": length * longer}


def test_a_network_that_gets_one_step_more_each_time_goes_through_its_past_again():
    call = Seen(("main:12", "torch/nn/modules/module.py:9"), 1400, "collect/policy", COMPUTES, calls=1000)
    first = diagnose_script(SCRIPT, [STEP, BACK, call], **past(60)).findings[0]
    assert (first.cause, first.function, first.line) == ("recomputed-past", "main", 12)
    assert "30 steps on average" in first.title
    causes = [f.cause for f in diagnose_script(SCRIPT, [STEP, BACK, call], **past(10)).findings]
    assert "recomputed-past" not in causes


def test_what_is_paid_per_call_stays_when_the_past_is_kept():
    """A call of 8 rows costs 80 us, of which 10 are paid however many there are: without them 7/8 of it is for rows."""
    call = Seen(("main:12", "torch/nn/modules/module.py:9"), 1400, "collect/policy", CALLS, calls=1000)
    gains = [diagnose_script(SCRIPT, [STEP, BACK, call], probes, **past(60)).findings for probes in (None, ROWS)]
    assert "recomputed-past" not in [f.cause for f in gains[0]]
    assert gains[1][0].cause == "recomputed-past"
    assert gains[1][0].gain.mid > 2


def test_what_a_call_does_besides_waiting_goes_with_the_wait():
    proxy = ("main:13", "_callmethod@/usr/lib/python3.11/multiprocessing/managers.py:9")
    waits = Seen((*proxy, "recv@/usr/lib/python3.11/multiprocessing/connection.py:9"), 600, "(waiting: pipe)", BLOCKS)
    packs = Seen((*proxy, "send@/usr/lib/python3.11/multiprocessing/connection.py:7"), 200, did=RUNS)
    apart = Seen(("main:9", "send@/usr/lib/python3.11/multiprocessing/connection.py:7"), 100, did=RUNS)
    first = diagnose_script(SCRIPT, [STEP, BACK, waits, packs, apart]).findings[0]
    assert (first.cause, first.line) == ("wait-bound", 13)
    assert first.share == pytest.approx(800 / 1500)
    assert first.title.startswith("for 40 % of the training loop main waits")


def test_arithmetic_beside_the_policy_is_not_shared_by_more_environments():
    policy = Seen(("main:12", "torch/nn/modules/module.py:9"), 300, "collect/policy", CALLS, calls=1000)
    table = Seen(("main:5:traces *= decay",), 900, did=CALLS)
    facts = {"env_steps": 1000, "~collect_calls": 30, "~collect_rows": 30}
    found = diagnose_script(SCRIPT, [STEP, BACK, policy, table], **facts).findings
    assert [(f.cause, f.line) for f in found[:1]] == [("compute-bound", 5)]


@pytest.mark.parametrize("file", ["zipfile.py", "gzip.py", "numpy/lib/_npyio_impl.py", "numpy/lib/format.py"])
def test_reading_packed_files_moves_bytes_whatever_the_function(file):
    file = file if file.startswith("numpy") else f"/usr/lib/python3.11/{file}"
    reads = Seen(("main:9", f"_read1@{file}:9"), 400, did=RUNS)
    assert spent(reads) == {MOVING: 1.0}
    first = diagnose_script(SCRIPT, [STEP, BACK, reads]).findings[0]
    assert (first.cause, first.line) == ("serialization", 9)


def test_drawing_words_is_no_search_through_priorities():
    script = SCRIPT.replace("shares = np.clip(shares, 0, 1)", "word = torch.multinomial(probs, 1)")
    draws = Seen(("main:9",), 400, did=COMPUTES)
    assert "prioritized-sum" not in [f.cause for f in diagnose_script(script, [STEP, BACK, draws]).findings]
    script = SCRIPT.replace("shares = np.clip(shares, 0, 1)", "at = rng.choice(n, 64, p=probs)")
    assert "prioritized-sum" in [f.cause for f in diagnose_script(script, [STEP, BACK, draws]).findings]


@pytest.mark.parametrize(("cell", "goes"), [("LSTM", 0.78), ("GRUCell", 0.13), ("RNN", 0.5)])
def test_what_a_whole_sequence_saves_depends_on_the_cell(cell, goes):
    loop = Seen(("main:8", "torch/nn/modules/module.py:9", f"{cell}.forward@torch/nn/modules/rnn.py:9"), 1400, "", CALLS)
    found = next(f for f in diagnose_script(SCRIPT, [STEP, BACK, loop]).findings if f.cause == "dispatch-bound")
    assert found.gain.mid == pytest.approx(interval(PLACE, 1 / (1 - goes * 0.7), samples=0).mid, rel=0.02)


ENVS = """
    def build(size):                                    # 2
        return wrap(gym.make("Maze-v0", size=size))
    def main():
        for _ in range(100):
            env = build(9)                              # 6
            env.step(0)
            loss.backward()
"""


def test_a_function_that_makes_environments_is_to_blame_with_all_it_does_for_it():
    steps = Seen(("main:7", "gymnasium/core.py:10"), 300, "collect/env_step", calls=1000)
    back = Seen(("main:8", "torch/autograd/graph.py:10"), 300, "learn/backward", CALLS, calls=10)
    made = Seen(("main:6", "build:3", "make@gymnasium/envs/registration.py:9", "gymnasium/core.py:5"), 200, "collect/env_make")
    wrapped = Seen(("main:6", "build:3", "gymnasium/wrappers/common.py:9"), 200)
    first = diagnose_script(ENVS, [steps, back, made, wrapped]).findings[0]
    assert (first.cause, first.function) == ("worker-respawn", "build")
    assert first.share == pytest.approx(0.4)


def test_waiting_that_nothing_explains_is_not_called_near_the_limit():
    for wait, said in ((900, True), (60, False)):
        waits = Seen(("main:9", "wait@/usr/lib/python3.11/threading.py:9"), wait, "(waiting: lock)", BLOCKS)
        works = Seen(("make:15",), wait, thread=1)  # in turns with others: no one thread explains it
        more = [replace(works, thread=n, ms=wait // 4) for n in (1, 2, 3, 4)]
        diagnosis = diagnose_script(SCRIPT, [STEP, BACK, waits, *more])
        assert ("in which it waits" in verdict(diagnosis.limits, ())[0]) == said
