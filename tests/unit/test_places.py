"""What a rewrite would replace, and which cause gives it its name."""

from __future__ import annotations

import pytest

from hotloop.analyse.findings.residuals import CAUSE, PLACE, interval
from hotloop.model.finding import Finding

from .recordings import BLOCKS, CALLS, COMPUTES, RUNS, Seen, diagnose_script

SCRIPT = """
    def flood(board):                                   # 2
        found = 0
        for cell in board:
            found += cell
        return found
    class Net:
        def forward(self, x):
            rows = []
            for i in range(len(x)):
                rows.append(x[i, 0].item())
                rows.append(i)
            return torch.tensor(rows)
    def main():                                         # 14
        for _ in range(100):
            env.step(0)
            total = flood(board)
            for k in range(50):
                stats[k] = total * k
            loss.backward()
            values = [net(leaf) for leaf in leaves]
            for leaf in leaves:
                net(leaf)
        model.learn(1000)
"""
STEP = Seen(("main:16", "gymnasium/core.py:10"), 100, "collect/env_step", calls=100)
BACK = Seen(("main:20", "torch/autograd/graph.py:10"), 200, "learn/backward", CALLS, calls=10)
MODULE = "torch/nn/modules/module.py:9"
LIBRARY = "stable_baselines3/common/base.py:5"


def told(expected: float, kind: str = PLACE) -> float:
    """What experience makes of what the model expects."""
    return interval(kind, expected, samples=0).mid


def find(*seen: Seen, **counters: int) -> list[Finding]:
    return list(diagnose_script(SCRIPT, [STEP, BACK, *seen], **counters).findings)


def test_a_function_that_training_calls_is_one_place_and_its_loop_can_go():
    first = find(Seen(("main:17", "flood:5"), 300), Seen(("main:17", "flood:3"), 50))[0]
    assert (first.cause, first.function, first.line) == ("hot-code", "flood", 5)
    assert first.share == pytest.approx(350 / 650)
    assert first.gain.mid == pytest.approx(told(1 / (1 - 0.9 * 350 / 650 + 0.05 * 50 / 650)), rel=0.02)


def test_a_loop_over_items_in_the_training_loop_itself_is_a_place_of_its_own():
    found = find(Seen(("main:19",), 300), Seen(("main:15",), 10), Seen(("main:17", "flood:5"), 250))
    assert [(f.cause, f.function, f.line) for f in found[:2]] == [("hot-code", "main", 19), ("hot-code", "flood", 5)]


def test_the_cause_that_explains_most_of_a_loop_takes_all_of_it():
    item = Seen(("main:24", LIBRARY, MODULE, "Net.forward:11"), 200, "learn/train > learn/forward", CALLS)
    rest = Seen(("main:24", LIBRARY, MODULE, "Net.forward:12"), 100, "learn/train > learn/forward", RUNS)
    made = Seen(("main:24", LIBRARY, MODULE, "Net.forward:13"), 50, "learn/train > learn/forward", COMPUTES)
    first = find(item, rest, made)[0]
    assert (first.cause, first.function) == ("per-item-transfer", "Net.forward")
    assert first.share == pytest.approx(350 / 650)


def test_what_is_computed_below_a_conversion_is_no_conversion():
    script = SCRIPT.replace("total = flood(board)", "total = [float(flood(board)[0]) for x in rows]")
    seen = [STEP, BACK, Seen(("main:17", "flood:5"), 300), Seen(("main:17",), 20, did=CALLS)]
    assert [f.cause for f in diagnose_script(script, seen).findings][:1] == ["hot-code"]


def test_what_a_library_calls_while_it_learns_is_no_driver():
    """Else all of the user's code below it would count as the training itself."""
    first = find(Seen(("main:24", LIBRARY, "flood:5"), 300, "learn/train", RUNS))[0]
    assert (first.cause, first.function) == ("hot-code", "flood")


@pytest.mark.parametrize(("line", "serial"), [(21, True), (23, True), (24, False)])
def test_a_loop_around_network_calls_is_serial_and_one_inside_is_not(line, serial):
    inside = ("Net.forward:10",) if line == 24 else ()
    call = Seen((f"main:{line}", MODULE, *inside, "torch/nn/modules/linear.py:7"), 400, "collect/policy", CALLS, calls=3200)
    causes = [f.cause for f in find(call)]
    assert ("serial-calls" in causes) == serial


SEQUENCE = """
    def plan(model, state):                             # 2
        total = 0
        for t in range(50):
            state = model(state, moves[:, t])
            total = total + score(state)
        return total
    def main():                                         # 8
        for _ in range(100):
            move = plan(model, seen)
            seen = env.step(move)
            loss.backward()
"""


def test_a_loop_of_network_calls_that_need_each_other_is_not_serial():
    step = Seen(("main:11", "gymnasium/core.py:10"), 100, "collect/env_step", calls=100)
    call = Seen(("main:10", "plan:5", MODULE, "torch/nn/modules/linear.py:7"), 400, "collect/policy", CALLS, calls=5000)
    assert [f.cause for f in diagnose_script(SEQUENCE, [step, call]).findings] == []


CANDIDATES = SEQUENCE.replace(
    """        total = 0
        for t in range(50):
            state = model(state, moves[:, t])
            total = total + score(state)
        return total
""",
    """        for k in range(50):
            state = seen
            for t in range(50):
                state = model(state, moves[k][:, t])
        return state
""",
)


def test_a_sequence_for_each_of_many_candidates_is_serial():
    step = Seen(("main:11", "gymnasium/core.py:10"), 100, "collect/env_step", calls=100)
    call = Seen(("main:10", "plan:6", MODULE, "torch/nn/modules/linear.py:7"), 400, "collect/policy", CALLS, calls=5000)
    assert [f.cause for f in diagnose_script(CANDIDATES, [step, call]).findings] == ["serial-calls"]


LOSSES = """
    def loss(model, state):                             # 2
        losses = []
        for t in range(50):
            state = model(state, moves[:, t])
            losses.append(model.terms(state))
        return torch.stack(losses).mean()
    def main():                                         # 8
        for _ in range(100):
            env.step(0)
            value = loss(model, seen)
            value.backward()
"""


@pytest.mark.parametrize(("line", "causes"), [(5, []), (6, ["serial-calls"])])
def test_what_only_comes_of_a_sequence_can_be_computed_of_all_of_it(line, causes):
    step = Seen(("main:10", "gymnasium/core.py:10"), 100, "collect/env_step", calls=100)
    back = Seen(("main:12", "torch/autograd/graph.py:10"), 200, "learn/backward", CALLS, calls=100)
    call = Seen(("main:11", f"loss:{line}", MODULE, "torch/nn/modules/linear.py:7"), 400, "learn/forward", CALLS, calls=5000)
    found = diagnose_script(LOSSES, [step, back, call], updates=100).findings
    assert [f.cause for f in found if f.cause == "serial-calls"] == causes


def test_the_backward_passes_of_calls_in_a_loop_go_with_them():
    """They are four of six parts of all calls under autograd, so as much of the backward pass is theirs."""
    call = Seen(("main:23", MODULE, "torch/nn/modules/linear.py:7"), 400, "learn/forward", CALLS, calls=1000)
    other = Seen(("main:24", LIBRARY, MODULE, "torch/nn/modules/linear.py:7"), 200, "learn/forward", CALLS, calls=1000)
    finding = next(f for f in find(call, other, updates=10) if f.cause == "serial-calls")
    goes = 0.97  # the most of calls without arithmetic that a batch saves
    assert finding.gain.mid == pytest.approx(told(1 / (1 - (400 + 200 * 4 / 6) / 900 * goes), CAUSE), rel=0.03)
    assert any("backward" in text for text in finding.evidence)


def test_one_sample_beside_the_others_makes_no_driver():
    """A stack with a span of the code beside it, as samples of old sessions have: the function is still a place."""
    stray = Seen(("main:17", "flood:5"), 10, "collect/env_step")
    first = find(Seen(("main:17", "flood:5"), 300), stray)[0]
    assert (first.cause, first.function) == ("hot-code", "flood")


def test_waiting_for_a_lock_is_named_if_nobody_works_meanwhile():
    first = find(Seen(("main:17", "flood:3"), 300, "(waiting: lock)"))[0]
    assert (first.cause, first.function, first.mechanism) == ("wait-bound", "flood", "waiting")


def test_pauses_of_the_collector_are_garbage_of_the_phase_they_fall_into():
    diagnosis = diagnose_script(SCRIPT, [STEP, BACK, Seen(("main:17", "flood:3"), 300, "(gc pause)")])
    assert diagnosis.limits.mechanisms["garbage"] == 300_000_000
    assert [f.cause for f in diagnosis.findings] == ["gc-pressure"]
    headrooms = {row.name: row.headroom for row in diagnosis.limits.phases}
    assert headrooms["collect"] > 2, "what the finding would leave is missing where the pauses were"


def test_what_a_fix_leaves_is_told_for_every_phase_it_changes():
    """The calls are made while collecting, their backward passes while learning: both get shorter, neither is gone."""
    call = Seen(("main:23", MODULE, "torch/nn/modules/linear.py:7"), 400, "collect/policy", CALLS, calls=3200)
    limits = diagnose_script(SCRIPT, [STEP, BACK, call], **{"~collect_calls": 10, "~collect_grad": 10}).limits
    rows = {row.name: row for row in limits.phases}
    assert 0.1 < rows["collect"].limit_ns / rows["collect"].ns < 0.5
    assert 0 < rows["learn"].limit_ns / rows["learn"].ns < 0.5


# ---- what others do meanwhile ----

WAITS = Seen(("main:17", "flood:3"), 600, "(waiting: queue)", BLOCKS)


def test_work_of_a_thread_the_loop_waits_for_is_named_there():
    works = Seen(("flood:5",), 550, did=RUNS, thread=1)
    first = find(WAITS, works, Seen(("main:19",), 350, "(waiting: queue)", BLOCKS, thread=1))[0]
    assert (first.cause, first.function, first.line, first.mechanism) == ("hot-code", "flood", 5, "interpreting")
    assert first.share == pytest.approx(600 / 900)
    assert "which the training waits for" in first.title


def test_a_thread_that_lets_time_limits_pass_is_what_the_loop_waits_for():
    """Everybody waits; the one whose waits end by their limits holds up all others."""
    server = Seen(("flood:3",), 500, "(waiting: lock)", BLOCKS, thread=1, expired=0.9)
    actor = Seen(("main:19",), 900, "(waiting: lock)", BLOCKS, thread=2)
    first = find(WAITS, server, actor)[0]
    assert (first.cause, first.function, first.line, first.mechanism) == ("poll-wait", "flood", 3, "waiting")


def test_waits_that_end_by_their_limit_count_as_polling_in_the_loop_itself_too():
    late = Seen(("main:17", "flood:3"), 600, "(waiting: lock)", BLOCKS, expired=0.9)
    assert [f.cause for f in find(late)][:1] == ["poll-wait"]


def test_waits_for_what_comes_in_time_are_no_polling():
    assert "poll-wait" not in [f.cause for f in find(WAITS, Seen(("flood:5",), 550, thread=1))]


# ---- libraries, arithmetic ----


def test_a_function_of_a_library_that_is_no_step_of_the_training_is_named():
    """Below `learn`, which runs the training, and none of what it runs."""
    run = Seen(("main:24", LIBRARY, "gymnasium/core.py:10"), 300, "collect/env_step", calls=300)
    copies = Seen(("main:24", LIBRARY, "stable_baselines3/common/vec.py:5", "copy.py:3"), 300)
    first = find(run, copies)[0]
    assert (first.cause, first.file.rpartition("/")[2], first.line) == ("library-call", "vec.py", 5)
    assert any("line 24" in text for text in first.evidence)


def test_what_a_vector_environment_does_besides_stepping_is_named():
    label = "collect/env_step > SyncVectorEnv.step"
    steps = "SyncVectorEnv.step@gymnasium/vector/sync.py:10"
    run = Seen(("main:16", steps), 100, label, calls=100)
    merges = Seen(("main:16", steps, "gymnasium/vector/infos.py:5"), 300, label)
    first = diagnose_script(SCRIPT, [BACK, run, merges]).findings[0]
    assert (first.cause, first.file.rpartition("/")[2], first.line) == ("library-call", "infos.py", 5)
    assert first.share == pytest.approx(300 / 600)


def test_a_function_of_pythons_own_library_that_several_places_reach_is_named():
    def below(*stack: str) -> Seen:
        return Seen((*stack, "/usr/lib/python3.11/asyncio/events.py:5", "/usr/lib/python3.11/traceback.py:7"), 200, did=RUNS)

    first = find(below("main:17", "flood:5"), below("main:19"))[0]
    assert (first.cause, first.file.rpartition("/")[2], first.mechanism) == ("library-call", "events.py", "interpreting")
    assert any("flood" in text and "main" in text for text in first.evidence)
    assert find(below("main:17", "flood:5"), below("main:17", "flood:5"))[0].cause == "hot-code"


def test_arithmetic_of_networks_is_told_without_a_promise():
    computes = Seen(("main:24", LIBRARY, MODULE, "torch/nn/modules/linear.py:7"), 600, "learn/forward", COMPUTES, calls=10)
    last = find(computes)[-1]
    assert (last.cause, last.mechanism, last.gain.mid, last.severity) == ("compute-bound", "computing", 1.0, "note")
    assert last.gain.high == pytest.approx(1 / (1 - last.share), rel=0.01)
