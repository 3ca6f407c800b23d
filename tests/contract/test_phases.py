"""Phases in both recorders: what comes next decides what was before; start-up, shut-down, iterations that close themselves."""

from __future__ import annotations

import gc

from hotloop.model import phase as phases
from hotloop.model import role as r
from hotloop.model import shard as m
from hotloop.store.shard import decode

from .conftest import Bench, Rig, path_names

MS = 1_000_000

# ---- models: what comes next decides ----


def test_a_model_call_belongs_to_the_event_after_it(looping):
    env, model, backward = looping.env(), looping.hooked(r.FORWARD), looping.hooked(r.BACKWARD)

    def act() -> None:
        model(100)

    def learn() -> None:
        model(300)

    for _ in range(3):
        act()
        env.step()
        learn()
        backward(20)
    assert looping.times() == {
        "collect/policy": 300,
        "collect/env_step > Env.step": 30,
        "learn/forward": 900,
        "learn/backward": 60,
    }
    assert looping.calls()["collect/policy"] == looping.calls()["learn/forward"] == 3


def test_a_span_that_moves_takes_its_numbers_along(looping):
    model, backward = looping.hooked(r.FORWARD), looping.hooked(r.BACKWARD)
    model(1000)
    assert looping.calls()["collect/policy"] == 1, "a place seen for the first time is thought to collect"
    backward(1)
    assert "collect/policy" not in looping.calls()
    node = looping.rig.node("learn/forward")
    assert (node.count, node.total_ns, node.min_ns, node.max_ns, node.sumsq) == (1, 1000, 1000, 1000, 1e6)
    operations = {o.name: o for o in looping.rig.fold().operations}
    assert operations["learn/forward"].union_ns == 1000
    assert operations["collect/policy"].union_ns == 0


def test_the_time_a_label_was_open_at_all_moves_too(looping):
    """Of labels that have several nodes, where it is kept apart from their total times."""
    model, backward = looping.hooked(r.FORWARD), looping.hooked(r.BACKWARD)
    with looping.module.profile("mine"):
        model(100)
        looping.module.within(phases.LEARN)
        model(1)
        looping.module.within(0)
    for _ in range(3):
        model(10)
    backward(1)
    unions = {o.name: o.union_ns for o in looping.rig.fold().operations}
    assert (unions["collect/policy"], unions["learn/forward"]) == (0, 131)


def test_the_place_remembers_what_came_after(looping):
    model, backward = looping.hooked(r.FORWARD), looping.hooked(r.BACKWARD)
    for _ in range(2):
        model(10)
        seen = looping.calls()
        backward(1)
    assert seen == looping.calls() | {"learn/forward": 2, "learn/backward": 1}


def test_a_place_that_is_followed_by_something_else_is_moved_back(looping):
    env, model, backward = looping.env(), looping.hooked(r.FORWARD), looping.hooked(r.BACKWARD)
    for event in (lambda: backward(1), lambda: backward(1), env.step, env.step):
        model(100)
        event()
    assert looping.times() == {
        "learn/forward": 200,
        "learn/backward": 2,
        "collect/policy": 200,
        "collect/env_step > Env.step": 20,
    }


def test_models_within_models_are_one_span(looping):
    layer = looping.hooked(r.FORWARD)
    model = looping.hooked(r.FORWARD, lambda: layer(5))
    model()
    assert looping.times() == {"collect/policy": 5}
    assert looping.calls()["collect/policy"] == 1


def test_only_lists_are_of_interest_where_tensors_are_made(looping):
    make = looping.hooked(r.FROM_LIST, lambda data: looping.tick(2))
    for data in ([1], (1,), 3, b"x"):
        make(data)
    make(data=[1])
    assert looping.calls()["collect/tensor_from_list"] == 2
    assert looping.times() == {"collect/tensor_from_list": 4, "": 6}


def test_a_models_method_that_holds_an_event_is_looked_through(looping):
    env, inner = looping.env(), looping.hooked(r.FORWARD)

    def play() -> None:
        looping.tick(1)
        inner(5)
        env.step()
        looping.rig.enter("mine")
        inner(2)
        looping.rig.exit("mine")

    method = looping.hooked(r.FORWARD, play)
    method()
    assert looping.times() == {"collect/policy": 8, "collect/policy > collect/env_step > Env.step": 10}
    method()
    times = looping.times()
    assert times["collect/env_step > Env.step"] == 10
    assert times["mine > collect/policy"] == 2
    assert sum(times.values()) == 2 * 18
    assert looping.calls()["collect/policy"] == 3, "the first call of it, what it called then, and the second time"


def test_a_hook_may_be_gone_when_its_call_is_decided(looping):
    backward = looping.hooked(r.BACKWARD)
    looping.hooked(r.FORWARD)(50)
    gc.collect()
    junk = [looping.hooked(r.PRINT) for _ in range(50)]
    backward(1)
    assert looping.times() == {"learn/forward": 50, "learn/backward": 1}
    assert len(junk) == 50


def test_more_calls_than_can_wait_stay_as_guessed(looping):
    model, backward = looping.hooked(r.FORWARD), looping.hooked(r.BACKWARD)
    for _ in range(40):
        model(10)
    backward(1)
    assert looping.calls()["learn/forward"] == 32
    assert looping.calls()["collect/policy"] == 8


# ---- gaps and start-up ----


def test_what_lies_between_events_gets_the_phase_of_the_next(looping):
    env, backward = looping.env(), looping.hooked(r.BACKWARD)
    looping.tick(1)
    env.step()
    looping.tick(2)
    backward(0)
    looping.tick(4)
    backward(0)
    looping.tick(8)
    env.step()
    looping.tick(16)
    assert looping.times() == {
        "collect/other": 1,
        "collect/env_step > Env.step": 20,
        "learn/other after collect": 2,
        "learn/other": 4,
        "collect/other after learn": 8,
        "": 16,
    }
    labels = {x.name: x for x in looping.rig.read().labels}
    assert labels["learn/other after collect"].kind == m.INFERRED
    assert (labels["learn/other after collect"].phase, labels["learn/other after collect"].after) == (
        phases.LEARN,
        phases.COLLECT,
    )
    assert (labels["learn/other"].phase, labels["learn/other"].after) == (phases.LEARN, 0)


def test_start_up_is_everything_before_the_first_step_or_update(bench):
    bench.tick(5)
    bench.rig.span("make", 7)
    bench.hooked(r.PRINT)(3)
    env = bench.env()
    env.reset()  # an event, not yet the loop
    bench.hooked(r.FORWARD)(100)
    assert bench.times()["collect/env_reset > Env.reset"] == 10
    env.step()
    times = bench.times()
    assert times == {"(start-up)": 125, "collect/env_step > Env.step": 10}
    shard = bench.rig.read()
    assert shard.first_work_ns - shard.tracks[0].end_ns == -10
    label = next(x for x in shard.labels if x.name == "(start-up)")
    assert label.phase == phases.STARTUP


def test_an_update_begins_the_loop_as_a_step_does(bench):
    bench.tick(5)
    bench.hooked(r.BACKWARD)(3)
    assert bench.times() == {"(start-up)": 5, "learn/backward": 3}


def test_the_loops_begin_is_told_once_and_that_is_our_time(bench):
    told: list[int] = []

    def on_loop() -> None:
        told.append(1)
        bench.tick(1000)

    bench.module.set_on_loop(on_loop)
    bench.tick(5)
    env = bench.env()
    env.step()
    env.step()
    assert told == [1]
    assert bench.times() == {"(start-up)": 5, "(profiler)": 1000, "collect/env_step > Env.step": 20}
    bench.module.step()
    (row,) = bench.rig.read().iterations
    assert row.end_ns - row.start_ns == sum(row.self_ns.values()) == 20


def test_a_fault_at_the_loops_begin_is_counted(bench):
    def on_loop() -> None:
        raise RuntimeError("ours")

    bench.module.set_on_loop(on_loop)
    bench.env().step()
    assert bench.rig.read().losses["internal"] == 1
    assert bench.counters() == {"env_steps": 1}


def test_the_loops_begin_may_end_the_recording(bench):
    bench.module.set_on_loop(bench.module.close)
    bench.env().step()
    assert bench.module.snapshot() == b""


def test_what_other_threads_did_before_the_loop_is_in_no_iteration(bench):
    bench.rig.track(1)
    bench.rig.span("worker", 500)
    bench.rig.track(-1)
    env = bench.env()
    env.step()
    bench.module.step()
    (row,) = bench.rig.read().iterations
    assert max(row.self_ns.values()) == 10
    assert bench.times(track=1) == {"(start-up)": 500, "": 10}


def test_what_comes_after_the_last_event_is_shut_down(recorder, tmp_path):
    rig = Rig(recorder, directory=str(tmp_path)).open()
    bench = Bench(rig)
    pipe = bench.patches.waiting(bench.work, "pipe")
    env = bench.env()
    pipe(100)  # before the loop
    env.step()
    pipe(7)  # in the loop
    env.step()
    bench.tick(30)
    pipe(50)
    rig.close()
    (file,) = tmp_path.iterdir()
    shard = decode(file.read_bytes())
    times = {" > ".join(path_names(shard, n.path)): n.self_ns for n in shard.nodes if n.self_ns}
    assert times == {
        "(start-up)": 100,
        "(waiting: pipe)": 7,
        "collect/env_step > Env.step": 20,
        "(shut-down)": 80,
    }
    assert sum(times.values()) == shard.tracks[0].lifetime_ns


def test_a_step_of_work_handed_over_is_an_event_for_who_waits_for_it(looping):
    env, model = looping.env(), looping.hooked(r.FORWARD)
    backward = looping.hooked(r.BACKWARD)
    backward(1)
    model(30)
    looping.tick(4)
    wait = looping.patches.waiting(looping.work, "pipe")

    def worker() -> int:
        here = looping.module.here()
        looping.rig.track(1)
        looping.module.adopt(*here)
        env.step()
        looping.module.release()
        looping.rig.track(-1)
        return 0

    looping.patches.waiting(worker, "pipe")()
    backward(1)
    wait(0)
    assert looping.times() == {
        "learn/backward": 2,
        "collect/policy": 30,
        "collect/other after learn": 4,
        "(waiting: pipe)": 10,
    }


# ---- whole phases ----


def test_everything_within_a_phase_belongs_to_it(looping):
    env, model, backward = looping.env(), looping.hooked(r.FORWARD), looping.hooked(r.BACKWARD)

    def evaluate() -> None:
        looping.tick(1)
        model(2)
        env.step()
        backward(4)

    looping.hooked(r.EVALUATE, evaluate)()
    assert looping.times() == {
        "eval/evaluate": 1,
        "eval/evaluate > eval/policy": 2,
        "eval/evaluate > eval/env_step > Env.step": 10,
        "eval/evaluate > learn/backward": 4,
    }
    model(8)
    assert looping.calls()["collect/policy"] == 1, "it is over"


def test_an_evaluation_within_a_rollout_stays_one_and_a_rollout_within_an_evaluation_too(looping):
    model = looping.hooked(r.FORWARD)
    evaluate = looping.hooked(r.EVALUATE, lambda: model(1))
    rollout = looping.hooked(r.ROLLOUT, lambda: (evaluate(), model(2)))
    rollout()
    looping.hooked(r.EVALUATE, lambda: looping.hooked(r.ROLLOUT, lambda: model(4))())()
    times = looping.times()
    assert times == {
        "collect/rollout > eval/evaluate > eval/policy": 1,
        "collect/rollout > collect/policy": 2,
        "eval/evaluate > eval/rollout > eval/policy": 4,
    }


def test_what_may_be_an_evaluation_collects_until_something_else_does(bench):
    """Evolution and search call it evaluate; what evaluates before it trains does so too."""
    env = bench.env((0, 1.0, False, {}))
    evaluate = bench.hooked(r.MAYBE_EVALUATE, lambda: [env.step() for _ in range(5)])
    evaluate()
    evaluate()
    assert bench.counters() == {"env_steps": 10}
    env.step()
    evaluate()
    assert bench.counters() == {"env_steps": 11, "eval_env_steps": 5}


def test_an_evaluation_beside_training_is_one_from_its_first_call_on(looping):
    env = looping.env((0, 1.0, False, {}))
    evaluate = looping.hooked(r.MAYBE_EVALUATE, lambda: [env.step() for _ in range(5)])
    env.step()
    evaluate()
    evaluate()
    assert looping.counters() == {"env_steps": 2, "eval_env_steps": 10}


def test_where_the_first_step_is_made_in_it_steps_before_say_nothing(looping):
    """Hooks are put on functions at the first env step: the call that made it goes on without one."""
    env = looping.env((0, 1.0, False, {}))
    env.step()
    evaluate = looping.hooked(r.MAYBE_COLLECT, lambda: [env.step() for _ in range(5)])
    evaluate()
    evaluate()
    assert looping.counters() == {"env_steps": 12}
    env.step()
    evaluate()
    assert looping.counters() == {"env_steps": 13, "eval_env_steps": 5}


def test_within_says_the_phase_by_hand(looping):
    env, model = looping.env(), looping.hooked(r.FORWARD)
    assert looping.module.within(phases.EVAL) == 0
    env.step()
    model(1)
    assert looping.module.within(0) == phases.EVAL
    model(2)
    assert looping.module.within(17) == 0
    assert looping.module.within(0) == 0
    assert looping.times() == {"eval/env_step > Env.step": 10, "eval/policy": 1, "collect/policy": 2}
    assert looping.counters() == {"env_steps": 1, "eval_env_steps": 1}


def test_a_phase_in_which_the_recording_is_reset_or_paused_ends_all_the_same(looping):
    for restart in (looping.module.reset, lambda: (looping.module.pause(), looping.module.resume(), looping.module.attach())):
        looping.hooked(r.EVALUATE, restart)()
        assert looping.module.within(0) == 0
        looping.hooked(r.LOGGING, restart)()
        before = looping.calls().get("log/print", 0)
        looping.hooked(r.PRINT)(1)
        assert looping.calls()["log/print"] == before + 1


# ---- iterations ----


def test_iterations_close_by_themselves_when_collecting_follows_learning(bench):
    env, update = bench.env(ns=MS), bench.hooked(r.OPTIMIZER)
    bench.tick(50 * MS)
    for _ in range(4):
        for _ in range(5):
            env.step()
        update(25 * MS)
    env.step()
    shard = bench.rig.read()
    assert [row.end_ns - row.start_ns for row in shard.iterations] == [30 * MS] * 4
    assert [row.counts["env_steps"] for row in shard.iterations] == [5] * 4
    for row in shard.iterations:
        assert sum(row.self_ns.values()) == 30 * MS


def test_short_ones_are_taken_together(bench):
    env, update = bench.env(ns=MS), bench.hooked(r.OPTIMIZER)
    for _ in range(43):
        env.step()
        update(MS)
    shard = bench.rig.read()
    assert [row.end_ns - row.start_ns for row in shard.iterations] == [20 * MS] * 4
    assert [(row.first, row.merged) for row in shard.iterations] == [(0, 10), (10, 10), (20, 10), (30, 10)]
    assert shard.iterations_closed == 40, "the last three are in the row that is still open"


def test_without_any_learning_episodes_end_them(bench):
    playing, over = bench.env(ns=30 * MS), bench.env((0, 1.0, True, {}), ns=30 * MS)
    for _ in range(3):
        playing.step()
        over.step()
    playing.step()
    assert [row.counts for row in bench.rig.read().iterations] == [{"env_steps": 2, "episodes": 1}] * 3
    bench.hooked(r.OPTIMIZER)(1)
    playing.step()
    over.step()
    playing.step()
    assert len(bench.rig.read().iterations) == 4, "what learns is told by its updates"


def test_what_is_expected_to_learn_is_not_told_by_its_episodes(bench):
    over = bench.env((0, 1.0, True, {}), ns=30 * MS)
    bench.module.expect_updates()
    for restart in (lambda: None, bench.module.reset):
        restart()
        for _ in range(3):
            over.step()
        assert bench.rig.read().iterations_closed == 0


def test_iterations_closed_by_hand_are_the_only_ones(bench):
    env, update = bench.env(ns=30 * MS), bench.hooked(r.OPTIMIZER)
    env.step()
    bench.module.step()
    for _ in range(3):
        env.step()
        update(30 * MS)
    env.step()
    bench.module.step()
    assert bench.rig.read().iterations_closed == 2
    bench.module.reset()
    for _ in range(3):
        env.step()
        update(30 * MS)
    env.step()
    assert bench.rig.read().iterations_closed == 0, "a new epoch is closed by hand as well"


def test_evaluations_close_no_iteration(bench):
    env, update = bench.env(ns=30 * MS), bench.hooked(r.OPTIMIZER)
    env.step()
    update(30 * MS)
    bench.hooked(r.EVALUATE, lambda: [env.step() for _ in range(3)])()
    assert bench.rig.read().iterations_closed == 0


def test_a_model_call_over_the_end_of_an_iteration_stays_as_guessed(looping):
    """Part of its time is in a row already."""
    backward = looping.hooked(r.BACKWARD)

    def run_and_step() -> None:
        looping.tick(100)
        looping.module.step()
        looping.tick(20)

    looping.hooked(r.FORWARD, run_and_step)()
    backward(1)
    looping.module.step()
    assert looping.times() == {"collect/policy": 120, "learn/backward": 1}
    assert [sum(row.self_ns.values()) for row in looping.rig.read().iterations] == [100, 21]


def test_a_thread_whose_first_event_comes_later_changes_no_row(looping):
    backward, model = looping.hooked(r.BACKWARD), looping.hooked(r.FORWARD)
    looping.rig.track(1)
    looping.tick(100)
    model(40)
    looping.module.step()
    looping.tick(7)
    backward(1)
    looping.module.step()
    shard = looping.rig.read()
    assert [row.self_ns for row in shard.iterations if min(row.self_ns.values()) < 0 or max(row.self_ns.values()) > 200] == []
    assert looping.times(track=1) == {"": 100, "collect/policy": 40, "(start-up)": 7, "learn/backward": 1}


def test_what_waits_when_its_thread_ends_stays_as_guessed(looping):
    env, model, backward = looping.env(), looping.hooked(r.FORWARD), looping.hooked(r.BACKWARD)
    looping.rig.track(1)
    env.step()
    model(100)
    looping.tick(5)
    looping.module.end_track()
    looping.module.step()
    backward(1)
    looping.module.step()
    assert max(max(row.self_ns.values()) for row in looping.rig.read().iterations) < 200
    assert looping.times(track=1).items() >= {"collect/policy": 100, "collect/other": 5, "learn/backward": 1}.items()


def test_what_waits_when_an_iteration_closes_stays_as_guessed(looping):
    model, backward = looping.hooked(r.FORWARD), looping.hooked(r.BACKWARD)
    model(100)
    looping.tick(9)
    looping.module.step()
    backward(1)
    assert looping.times() == {"collect/policy": 100, "collect/other": 9, "learn/backward": 1}
