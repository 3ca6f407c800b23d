"""The net and the shops: what they do, and that turbo does exactly the same."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from petri import WAIT, PlainNet, TimedNet, TurboNet, job_shop, states
from shop import FEATURES, Orders, PlainShops, Size, TurboShops, draw_orders


@st.composite
def job_shops(draw: st.DrawFn) -> TimedNet:
    """Any size, few different durations (so that operations end together), machines with several units."""
    jobs, operations = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    source = random.Random(draw(st.integers(0, 10**6)))
    machines = [[source.randrange(operations) for _ in range(operations)] for _ in range(jobs)]
    durations = [[source.randint(1, draw(st.integers(1, 4))) for _ in range(operations)] for _ in range(jobs)]
    return job_shop(machines, durations, [draw(st.integers(1, 3)) for _ in range(operations)])


@st.composite
def acyclic_nets(draw: st.DrawFn) -> TimedNet:
    """Any net whose transitions lead from lower places to higher ones: it always comes to an end."""
    places, transitions = draw(st.integers(2, 9)), draw(st.integers(1, 9))
    inputs, outputs = [], []
    for _ in range(transitions):
        cut = draw(st.integers(1, places - 1))
        inputs.append(tuple(draw(st.sets(st.integers(0, cut - 1), min_size=1, max_size=3))))
        outputs.append(tuple(draw(st.lists(st.integers(cut, places - 1), max_size=3))))
    numbers = lambda most: tuple(draw(st.integers(0, most)) for _ in range(places))
    return TimedNet(tuple(inputs), tuple(outputs), numbers(3), numbers(3), draw(st.integers(0, transitions)))


@settings(max_examples=300, deadline=None)
@given(net=st.one_of(job_shops(), acyclic_nets()), data=st.data())
def test_plain_and_turbo_give_the_same_trajectory(net: TimedNet, data: st.DataObject) -> None:
    plain, turbo = PlainNet(net), TurboNet(net)
    assert states(plain) == states(turbo)
    for _ in range(100):
        choices = plain.enabled() + [WAIT] * plain.can_wait()
        assert turbo.can_wait() == plain.can_wait()
        if not choices:
            break
        decision = data.draw(st.sampled_from(choices))
        assert plain.step(decision) == turbo.step(decision)
        assert states(plain) == states(turbo)


@settings(max_examples=40, deadline=None)
@given(jobs=st.integers(1, 5), machines=st.integers(1, 5), longest=st.integers(1, 20), seed=st.integers(0, 10**6))
def test_plain_and_turbo_shops_fill_the_same_arrays(jobs: int, machines: int, longest: int, seed: int) -> None:
    size, source = Size(jobs, machines, longest), np.random.default_rng(seed)
    pair = PlainShops(3, size, seed), TurboShops(3, size, seed)
    for _ in range(60):
        for name in ("observation", "mask", "reward", "done"):
            one, other = (getattr(shops, name) for shops in pair)
            assert one.tobytes() == other.tobytes(), name
        rows = (source.random(pair[0].mask.shape) * pair[0].mask).argmax(1).tolist()
        for shops in pair:
            shops.step(rows)
            if shops.done.all():
                shops.reset([0, 2])
    assert pair[0].finished == pair[1].finished


def test_two_jobs_share_a_machine_one_after_the_other() -> None:
    net = PlainNet(job_shop([[0], [0]], [[3], [4]], [1]))
    assert net.enabled() == [0, 1]
    assert net.step(0) == 3, "the machine is taken: the clock goes on by itself to the end of the operation"
    assert net.enabled() == [1]
    assert net.step(1) == 4
    assert (net.clock, net.enabled(), net.can_wait()) == (7, [], False)


def test_a_machine_with_two_units_runs_two_operations_at_once() -> None:
    net = TurboNet(job_shop([[0], [0]], [[3], [4]], [2]))
    assert net.step(0) == 0, "the other job may still start"
    assert net.step(1) == 4
    assert net.clock == 4


def test_waiting_ends_with_the_next_operation() -> None:
    net = TurboNet(job_shop([[0, 1], [1, 0]], [[5, 1], [2, 2]], [1, 1]))
    net.step(0)
    assert net.step(WAIT) == 5
    assert net.enabled() == [1, 2], "job 0's second operation and job 1's first want the same free machine"


@pytest.mark.parametrize("version", [PlainShops, TurboShops])
def test_a_return_is_minus_the_makespan_over_the_lower_bound(version: type) -> None:
    shops, source = version(4, Size(4, 3), seed=5), np.random.default_rng(0)
    returns = np.zeros(4)
    while not shops.done.all():
        shops.step((source.random(shops.mask.shape) * shops.mask).argmax(1).tolist())
        returns += shops.reward
    expected = [-shops.clock_of(i) / shops.bounds[i] for i in range(4)]
    assert returns == pytest.approx(expected, abs=1e-5)
    assert (returns <= -1 + 1e-5).all(), "nothing is shorter than the lower bound"
    assert sorted(shops.finished) == pytest.approx(sorted(-r for r in returns), abs=1e-5)
    assert not shops.mask.any(), "a finished shop offers nothing"
    assert (shops.observation[:, :-1, FEATURES.index("done")] == 1).all()


@pytest.mark.parametrize("version", [PlainShops, TurboShops])
def test_a_row_the_mask_forbids_is_refused(version: type) -> None:
    shops = version(2, Size(3, 3), seed=1)
    with pytest.raises(ValueError, match="mask"):
        shops.step([3, 0])  # nothing runs yet, so there is nothing to wait for


def test_the_lower_bound_is_the_busiest_machine_or_the_longest_job() -> None:
    assert Orders([[0, 1], [0, 1]], [[5, 1], [6, 1]]).lower_bound == 11
    assert Orders([[0, 1], [1, 0]], [[5, 9], [1, 1]]).lower_bound == 14


def test_orders_visit_every_machine_once_and_follow_the_seed() -> None:
    orders = draw_orders(random.Random(3), Size(4, 5, longest=9))
    assert all(sorted(row) == list(range(5)) for row in orders.machines)
    assert all(1 <= duration <= 9 for row in orders.durations for duration in row)
    assert orders == draw_orders(random.Random(3), Size(4, 5, longest=9))
