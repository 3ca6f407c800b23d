"""The job: who learns, whose env steps count, when its loop began."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotloop.model import phase as ph
from hotloop.model import shard as m
from hotloop.model.job import count_work, find_learners, fold_job, job_loop_ns, order_processes
from hotloop.model.numbers import measure_loop, rate_of, take_numbers

from .loops import label
from .shards import ROOT, node, shard

S = 1_000_000_000
LABELS = [
    ROOT, label("(start-up)", ph.STARTUP), label("collect/env_step", ph.COLLECT), label("(waiting: pipe)", 0, m.WAIT),
    label("(waiting: sleep)", 0, m.WAIT), label("learn/backward", ph.LEARN),
]  # fmt: skip
PATHS = [m.Path(0, 0), m.Path(0, 1), m.Path(0, 2), m.Path(2, 3), m.Path(2, 4), m.Path(0, 5)]


def process(
    number: int, work: tuple[int, int] = (0, 0), waits: int = 0, naps: int = 0, steps: int = 0, **counters: int
) -> m.Shard:
    """A process that lives from 0 to 20 s: 5 s of start-up, then it steps and learns."""
    nodes = [node(0, 0, 0), node(0, 1, 5 * S), node(0, 2, 5 * S, steps, 5 * S), node(0, 5, 10 * S, 1, 10 * S)]
    nodes += [node(0, 3, 0, waits, 0), node(0, 4, 0, naps, 0)]
    made = shard(LABELS, PATHS, nodes, id=number, pid=number, counters=counters, end_ns=20 * S)
    tracks = tuple(replace(track, end_ns=20 * S) for track in made.tracks)
    return replace(made, tracks=tracks, first_work_ns=work[0] * S, last_work_ns=work[1] * S)


def test_the_process_that_takes_optimizer_steps_learns_whatever_others_close():
    worker = replace(process(2, env_steps=1024), iterations_closed=36)
    learner = replace(process(3, updates=640, env_steps=4096), iterations_closed=3)
    launcher = process(1)
    assert find_learners([launcher, worker, learner]) == [2]
    assert order_processes([launcher, worker, learner], 1) == [2, 0, 1]


def test_without_updates_the_process_that_was_started_is_the_learner():
    assert order_processes([process(2, env_steps=5), process(1), process(3)], 1) == [1, 0, 2]


def test_of_several_learners_the_slowest_comes_first():
    ranks = [process(1, (5, 15), updates=9), process(2, (5, 19), updates=9)]
    assert order_processes(ranks, 1) == [1, 0]
    assert count_work(ranks)["updates"] == 18


@pytest.mark.parametrize(
    ("learner", "workers", "steps", "resets"),
    [
        # a vector environment whose workers count the same steps, told by the pipe it waits for
        (process(1, steps=100, waits=400, updates=9, env_steps=400, resets=1), [{"env_steps": 110, "resets": 7}] * 4, 400, 28),
        # the same without a wait that is seen: both counts agree
        (process(1, steps=100, updates=9, env_steps=400, resets=1), [{"env_steps": 100, "resets": 7}] * 4, 400, 28),
        # workers that collect by themselves, beside a learner that steps an environment of its own
        (process(1, steps=100, updates=9, env_steps=100, resets=1), [{"env_steps": 300, "resets": 3}] * 2, 700, 7),
        # an environment that sleeps waits for no worker
        (process(1, steps=100, naps=100, updates=9, env_steps=100), [{"env_steps": 300}] * 2, 700, 0),
        # a learner that only learns
        (process(1, updates=9), [{"env_steps": 300, "resets": 3}] * 2, 600, 6),
        # nobody learns: the process that was started passes messages
        (process(1), [{"env_steps": 300}] * 2, 600, 0),
    ],
)  # fmt: skip
def test_each_env_step_counts_once_at_the_level_the_learner_sees(learner, workers, steps, resets):
    work = count_work([learner, *(process(2 + i, **counted) for i, counted in enumerate(workers))])
    assert work["env_steps"] == steps
    assert work.get("resets", 0) == resets


def test_counters_of_the_user_are_summed_and_facts_stay_facts():
    work = count_work([process(1, updates=3, frames=2, **{"~model_calls": 5}), process(2, frames=4)])
    assert work == {"updates": 3, "frames": 6, "~model_calls": 5}


def test_a_loop_begins_with_the_workers_where_the_learner_only_learns():
    learner, worker = process(1, (5, 20), updates=9), process(2, (3, 19), env_steps=300)
    ledger = fold_job([learner, worker])
    numbers = take_numbers(ledger)
    assert (numbers.startup_ns, numbers.inferred_ns, numbers.base_ns) == (3 * S, 2 * S, 17 * S)
    assert numbers.measured_ns + numbers.inferred_ns + numbers.unattributed_ns + numbers.profiler_ns == numbers.base_ns
    assert ledger.balances[0].lifetime_ns == 20 * S and ledger.balances[0].inferred_ns == 2 * S
    assert sum(ns for shard_, track, _, ns in ledger.self_by_track if (shard_, track) == (0, 0)) == 20 * S
    assert job_loop_ns([learner, worker], numbers) == 17 * S


def test_a_learner_that_steps_itself_begins_with_its_own_first_step():
    learner, worker = process(1, (5, 20), updates=9, env_steps=300), process(2, (3, 19), env_steps=300)
    assert take_numbers(fold_job([learner, worker])).startup_ns == 5 * S


def test_where_only_workers_work_their_clock_is_the_loop():
    nodes = [node(0, 0, 20 * S)]
    root = shard([ROOT], [m.Path(0, 0)], nodes, id=1, pid=1, end_ns=20 * S)
    shards = [root, process(2, (3, 18), env_steps=300), process(3, (4, 19), env_steps=300)]
    assert job_loop_ns(shards, take_numbers(fold_job(shards))) == 16 * S


def test_a_session_of_spans_has_its_loop_from_the_first_span_to_the_last_work():
    made = shard([ROOT, label("mine")], [m.Path(0, 0), m.Path(0, 1)], [node(0, 0, 2 * S), node(0, 1, 8 * S, 4, 8 * S)])
    tracks = tuple(replace(track, end_ns=13 * S) for track in made.tracks)  # born at 3 s
    made = replace(made, tracks=tracks, end_ns=13 * S, first_work_ns=5 * S, last_work_ns=12 * S, counters={"env_steps": 900})
    loop_ns = measure_loop(made, take_numbers(fold_job([made])))
    assert loop_ns == 9 * S
    assert rate_of(900, loop_ns) == 100
