"""Device time by events, over a device made of a clock and queues: it runs what is queued, in order, one stream beside
another."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.integrations.device.attribution import Attribution, union_ns
from hotloop.integrations.device.marks import BETWEEN, EARLIER

MS, US = 1_000_000, 1_000
A, B, C = (1, 1), (1, 2), (1, 3)


class FakeDevice:
    """A virtual clock; each stream is done with its work at `free`. Events keep the time they are reached."""

    def __init__(self, call_ns: int = 500, latency_ns: int = 0) -> None:
        self.now = 1_000_000
        self.latency_ns = latency_ns  # until an idle device begins with what is queued
        self.wake_ns = 0  # the same, after a millisecond without work
        self.truth: dict[tuple[int, int], int] = {}  # by who queued it
        self.free: dict[tuple[int, int], int] = {}
        self.stream = (0, 0)
        self.call_ns = call_ns
        self.stuck = False
        self.made = self.syncs = 0
        self.fails_at = ""
        self.skew = 987_654_321  # the device's clock began at another time

    # the backend
    def now_ns(self) -> int:
        return self.now

    def current(self) -> tuple[int, int]:
        return self.stream

    def make_event(self) -> dict[str, int]:
        self._may_fail("make_event")
        self.made += 1
        return {}

    def record(self, event: dict[str, int]) -> None:
        self._may_fail("record")
        if event.setdefault("device", self.stream[0]) != self.stream[0]:
            raise RuntimeError("Event device does not match recording stream's device")  # as torch does
        self.now += self.call_ns
        event["at"] = self._begins()
        self.free[self.stream] = event["at"]

    def is_done(self, event: dict[str, int]) -> bool:
        self._may_fail("is_done")
        return not self.stuck and event["at"] <= self.now

    def elapsed_ns(self, first: dict[str, int], last: dict[str, int]) -> float:
        self._may_fail("elapsed_ns")
        assert max(first["at"], last["at"]) <= self.now, "asked for an event that was not reached: the driver would raise"
        return (last["at"] + self.skew) - (first["at"] + self.skew)

    def _may_fail(self, where: str) -> None:
        if self.fails_at == where:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def _begins(self) -> int:
        free = self.free.get(self.stream, 0)
        return max(self.now + (self.wake_ns if self.now - free > MS else self.latency_ns), free)

    # the script
    def work(self, ns: int, owner: tuple[int, int] = A) -> None:
        self.now += 5 * US  # a launch
        self.free[self.stream] = self._begins() + ns
        self.truth[owner] = self.truth.get(owner, 0) + ns

    def think(self, ns: int) -> None:
        self.now += ns

    def sync(self, copy_ns: int = 0) -> None:
        self.syncs += 1
        self.now = max(self.now, self.free.get(self.stream, 0)) + copy_ns


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


def machine(device: FakeDevice, notes: list[str] | None = None, **more) -> Attribution:
    return Attribution(device, (notes if notes is not None else []).append, **{"budget": 1.0, "allowance_ns": 0, **more})


def blocked(m: Attribution, device: FakeDevice, inside: tuple[int, int], copy_ns: int = 0, everything: bool = False) -> None:
    wait = m.wait_begins(inside, everything)
    device.sync(copy_ns)
    if wait is not None:
        m.wait_ends(wait)


def test_work_queued_in_a_and_waited_for_in_b_is_charged_to_a(device):
    m = machine(device)
    m.edge(A, True)
    for _ in range(10):
        device.work(5 * MS)
    m.edge(BETWEEN)
    m.edge(B, True)
    blocked(m, device, B, copy_ns=20 * US)
    m.edge(BETWEEN)
    assert m.poll(closing=True)
    whole = m.labels[B].blocked_ns
    assert whole == pytest.approx(50 * MS, rel=0.01)
    assert m.labels[A].waited_ns >= 0.95 * whole
    assert m.pairs[B, A] == m.labels[A].waited_ns
    assert m.labels[B].waited_ns <= 20 * US
    assert m.labels[B].copy_ns == pytest.approx(20 * US, abs=12 * US)
    assert m.labels[A].least_ns == pytest.approx(50 * MS, rel=0.01)
    assert m.labels[A].host_ns == pytest.approx(50 * US, rel=0.1)
    assert m.labels[B].host_ns < 20 * US
    assert device.syncs == 1, "only the script's own"


def test_a_wait_is_shared_out_over_those_who_queued_the_work_in_order(device):
    m = machine(device)
    for key, ns in ((A, 10 * MS), (B, 30 * MS)):
        m.edge(key, True)
        device.work(ns)
        m.edge(BETWEEN)
    m.edge(C, True)
    blocked(m, device, C)
    m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.pairs[C, A] == pytest.approx(10 * MS, rel=0.02)
    assert m.pairs[C, B] == pytest.approx(30 * MS, rel=0.02)
    assert m.labels[C].copy_ns < 50 * US


def test_a_wait_reaches_back_to_the_window_before(device):
    m = machine(device, window_ns=1)
    for key in (A, B):
        m.edge(key, True)
        device.work(20 * MS)
        m.edge(BETWEEN)
    m.edge(C, True)  # a third window
    blocked(m, device, C)
    m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.windows == 3
    assert m.pairs[C, A] == pytest.approx(20 * MS, rel=0.02)
    assert m.pairs[C, B] == pytest.approx(20 * MS, rel=0.02)


def test_work_from_before_the_first_window_is_not_blamed_on_a_span(device):
    m = machine(device)
    device.work(40 * MS)
    m.edge(A, True)
    device.work(1 * MS)
    blocked(m, device, A)
    m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.pairs[A, EARLIER] == pytest.approx(40 * MS, rel=0.02)
    assert m.pairs[A, A] == pytest.approx(1 * MS, rel=0.05)


def test_two_streams_side_by_side_are_counted_once_in_the_devices_busy_time(device):
    m = machine(device)
    m.edge(A, True)
    device.work(30 * MS)
    other = (0, 7)
    device.stream = other
    m.switch(A)
    device.work(30 * MS)
    m.switch(A)
    device.stream = (0, 0)
    m.edge(BETWEEN)
    m.edge(B, True)
    wait = m.wait_begins(B, everything=True)
    device.now = max(device.free.values())
    m.wait_ends(wait)
    m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.labels[A].least_ns == pytest.approx(60 * MS, rel=0.02)
    assert m.busy_ns == pytest.approx(30 * MS, rel=0.02)
    assert m.labels[A].waited_ns == pytest.approx(30 * MS, rel=0.02), "the host waited once"


def test_two_devices_have_clocks_of_their_own(device):
    m = machine(device)
    m.edge(A, True)
    device.work(10 * MS)
    device.stream = (1, 0)
    m.switch(A)
    device.work(20 * MS)
    m.switch(A)
    device.stream = (0, 0)
    m.edge(BETWEEN)
    device.now += 30 * MS
    m.poll(closing=True)
    assert m.busy_ns == pytest.approx(30 * MS, rel=0.02), "each device is busy for itself"


def test_a_loop_that_waits_for_the_host_has_no_sure_device_time(device):
    m = machine(device)
    for _ in range(5):
        m.edge(A, True)  # an env step: nothing is queued
        device.think(2 * MS)
        m.edge(BETWEEN)
        m.edge(B, True)  # small kernels, slower to launch than to run
        for _ in range(20):
            device.work(1 * US)
        m.edge(BETWEEN)
    device.think(MS)
    m.poll(closing=True)
    assert m.labels[A].least_ns == 0
    assert m.labels[A].most_ns == pytest.approx(10 * MS, rel=0.02)
    assert m.labels[B].least_ns == 0
    assert m.labels[A].host_ns == pytest.approx(10 * MS, rel=0.02)


def test_a_queue_that_never_runs_dry_is_placed_by_the_wait_at_its_end(device):
    m = machine(device)
    device.work(100 * MS)  # before anything is marked: no mark ever finds an idle device
    m.edge(A, True)
    device.work(50 * MS)
    m.edge(BETWEEN)
    m.edge(B, True)
    blocked(m, device, B)
    m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.pairs[B, EARLIER] == pytest.approx(100 * MS, rel=0.02)
    assert m.pairs[B, A] == pytest.approx(50 * MS, rel=0.02)


def test_events_that_are_never_reached_cost_their_window_only_and_stay_bounded(device):
    device.stuck = True
    m = machine(device, pool=32, window_ns=1)
    for _ in range(500):
        m.edge(A, True)
        device.work(MS)
        m.edge(BETWEEN)
        device.think(50 * MS)
    assert not m.broken
    assert not m.poll(closing=True)
    assert device.made <= 32
    assert m.windows == 0
    assert m.numbers()["unresolved"] > 0
    device.stuck = False
    assert m.poll()
    assert m.windows > 0


def test_an_empty_pool_drops_the_window_and_goes_on_later(device):
    m = machine(device, pool=4)
    m.edge(A, True)
    for _ in range(10):
        device.work(MS)
        m.switch(A)
    m.edge(BETWEEN)
    assert m.dropped == 1
    assert device.made == 4
    device.think(2_000 * MS)
    m.edge(B, True)
    device.work(MS)
    m.edge(BETWEEN)
    device.think(5 * MS)
    m.poll(closing=True)
    assert m.windows == 1
    assert m.labels[B].spans >= 1, "it stands for the time that was dropped, too"


@pytest.mark.parametrize("where", ["make_event", "record", "is_done", "elapsed_ns"])
def test_an_exception_of_the_backend_switches_it_off_with_one_note(device, where):
    notes: list[str] = []
    m = machine(device, notes, window_ns=1)
    device.fails_at = where
    for _ in range(5):
        m.edge(A, True)
        blocked(m, device, A)
        m.edge(BETWEEN)
        device.think(MS)
    m.poll(closing=True)
    assert len(notes) == 1
    assert "illegal memory access" in notes[0]
    assert m.numbers()["broken"]
    before = device.made
    m.edge(A, True)
    m.edge(BETWEEN)
    assert device.made == before


def test_our_own_time_keeps_to_its_budget_and_windows_are_spread_over_the_run():
    device = FakeDevice(call_ns=7 * US)  # as a real event costs
    m = machine(device, budget=0.01, window_ns=5 * MS)
    began = device.now
    for _ in range(20_000):
        m.edge(A, True)
        device.think(60 * US)
        m.edge(BETWEEN)
        device.think(20 * US)
    m.poll(closing=True)
    elapsed = device.now - began
    assert m.cost_ns <= 0.012 * elapsed
    assert m.windows >= 5
    assert 0 < m.measured_ns < 0.3 * elapsed
    assert m.labels[A].host_ns == pytest.approx(m.labels[A].spans * 60 * US, rel=0.02), "our own time is in none of them"


def test_marks_that_touch_are_one_event(device):
    m = machine(device)
    for _ in range(10):
        m.edge(A, True)
        device.work(100 * US)
        m.edge(BETWEEN)
    assert m.marks == 11


def test_the_numbers_are_bounded_whatever_is_marked(device):
    m = machine(device, window_ns=1)
    for i in range(2000):
        m.edge((1, i), True)
        device.work(US)
        m.edge(BETWEEN)
        device.think(50 * US)
    m.poll(closing=True)
    numbers = m.numbers()
    assert len(numbers["labels"]) <= 513
    assert sum(row["spans"] for row in numbers["labels"]) == 2000


def test_threads_never_wait_for_each_other(device):
    m = machine(device)
    m.edge(A, True)
    assert m._alone()  # this thread is at work there
    other = threading.Thread(target=lambda: (m.edge(B, True), m.switch(A), m.wait_begins(B), m.poll()))
    other.start()
    other.join(10)
    assert not other.is_alive()
    m._turns.append(None)
    assert m.missed == 1
    m.edge(BETWEEN)
    assert not m.broken


def test_an_end_without_a_beginning_is_nothing(device):
    m = machine(device)
    m.edge(BETWEEN)
    m.switch(A)
    assert m.wait_begins(A) is None
    assert m.marks == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from([A, B, C]),
        st.lists(st.integers(1, 3_000), max_size=6),  # kernels, µs
        st.integers(0, 2_000),  # the host thinks, µs
        st.sampled_from(["", "short", "long"]),  # a wait at the end of the span
        st.integers(1, 20_000),  # what a long one copies, µs
    ),
    min_size=1, max_size=60,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(STEPS, st.integers(0, 9), st.integers(0, 29), st.integers(0, 200))
def test_the_truth_lies_between_at_least_and_at_most(steps, latency_us, wake_us, window_ms):
    """Whatever is queued, however long an idle device takes to begin and a copy takes."""
    device = FakeDevice(call_ns=7 * US, latency_ns=latency_us * US)
    device.wake_ns = max(wake_us, latency_us) * US
    m = machine(device, window_ns=window_ms * MS)
    for key, kernels, think, waits, copy in steps:
        m.edge(key, True)
        for us in kernels:
            device.work(us * US, key)
        device.think(think * US)
        if waits:
            wait = m.wait_begins(key, is_short=waits == "short")
            device.sync((copy if waits == "long" else 5) * US)
            if wait is not None:
                m.wait_ends(wait)
        m.edge(BETWEEN)
        device.think(7 * US)
    device.sync()
    m.poll(closing=True)
    device.think(MS)
    assert m.poll()
    slack = 1 * US * len(steps)
    for key, truth in device.truth.items():
        assert m.labels[key].least_ns <= truth + slack
        assert m.labels[key].most_ns >= truth - slack
    assert m.busy_ns <= sum(device.truth.values()) + slack


def test_slow_first_waits_of_an_idle_device_are_not_taken_for_its_work():
    """A first copy loads libraries: milliseconds in which nothing is queued."""
    device = FakeDevice(call_ns=7 * US, latency_ns=8 * US)
    m = machine(device)
    for call in range(2_000):
        for key in (A, B):
            m.edge(key, True)
            for _ in range(4):
                device.work(3 * US, key)
            device.think(80 * US)
            m.edge(BETWEEN)
        m.edge(C, True)
        blocked(m, device, C, copy_ns=(20_000 if call < 3 else 20) * US)
        m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.windows > 5
    assert m.busy_ns <= sum(device.truth.values())
    assert m.busy_ns < 0.1 * device.now


def test_a_wait_that_has_not_ended_says_nothing_of_the_clock(device):
    """Another thread's, while this one resolves."""
    m = machine(device)
    m.edge(A, True)
    device.work(20 * MS)
    m.edge(BETWEEN)
    m.edge(B, True)
    assert m.wait_begins(B) is not None
    device.think(40 * MS)
    m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.labels[A].least_ns == pytest.approx(20 * MS, rel=0.02)
    _, earliest, latest = m._anchors[0]
    assert earliest < latest, (
        "the latest is when a mark was found reached; a wait without an end would say less than the earliest"
    )


def test_the_union_of_nothing_is_nothing():
    assert union_ns([]) == 0


def test_a_large_copy_at_the_end_of_a_wait_stays_a_copy(device):
    """Where a mark finds the device idle, the clocks are tied by it, not by the end of a wait that copied for long."""
    m = machine(device)
    for _ in range(5):
        m.edge(A, True)
        device.work(4 * MS)
        m.edge(BETWEEN)
        m.edge(B, True)
        wait = m.wait_begins(B, is_short=False)
        device.sync(copy_ns=3 * MS)
        m.wait_ends(wait)
        m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.pairs[B, A] == pytest.approx(20 * MS, rel=0.02)
    assert m.labels[B].copy_ns == pytest.approx(15 * MS, rel=0.02)


def test_a_slow_beginning_is_not_taken_for_the_rest_of_the_run():
    device = FakeDevice(call_ns=7 * US)
    m = machine(device, budget=0.001, window_ns=5 * MS)
    m.edge(A, True)
    device.think(2_000 * MS)  # the first call loads libraries
    m.edge(BETWEEN)
    for _ in range(20_000):
        m.edge(A, True)
        device.think(100 * US)
        m.edge(BETWEEN)
        device.think(100 * US)
    m.poll(closing=True)
    assert m.windows > 3
    assert m.measured_ns < 0.6 * m.covered_ns
    assert m.labels[A].host_ns == pytest.approx(4_000 * MS, rel=0.05)
    assert m.labels[BETWEEN].host_ns == pytest.approx(2_000 * MS, rel=0.1)


def test_a_beginning_four_times_as_slow_weighs_what_it_took():
    """A first window stands for itself alone, and the time after the last for that one."""
    device = FakeDevice(call_ns=7 * US)
    m = machine(device, budget=0.0003, window_ns=50 * MS)
    truth = 0
    for call in range(100):
        took = (4 if call < 3 else 1) * 1500 * US
        truth += took
        m.edge(A, True)
        device.work(4 * MS)
        m.edge(BETWEEN)
        m.edge(B, True)
        wait = m.wait_begins(B, is_short=False)
        device.sync(copy_ns=took)
        if wait is not None:
            m.wait_ends(wait)
        m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.windows >= 2
    assert m.measured_ns < 0.5 * m.covered_ns
    assert m.covered_ns == pytest.approx(device.now - m.began_ns, rel=1e-6)
    assert m.labels[B].copy_ns == pytest.approx(truth, rel=0.05)


def test_a_short_run_is_measured_whole():
    device = FakeDevice(call_ns=7 * US)
    m = machine(device, budget=0.005, window_ns=50 * MS, allowance_ns=20 * MS)
    for _ in range(50):
        m.edge(A, True)
        device.work(4 * MS)
        device.sync()
        m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.measured_ns == pytest.approx(m.covered_ns, rel=0.01)
    assert m.labels[A].spans == pytest.approx(50, rel=0.01)
    for _ in range(100_000):
        m.edge(A, True)
        device.think(200 * US)
        m.edge(BETWEEN)
    m.poll(closing=True)
    assert m.cost_ns <= 20 * MS + 0.006 * (device.now - m.began_ns)


def test_a_window_whose_last_mark_finds_no_event_is_dropped_whole(device):
    """Its events go back to the pool once: no other window's may be told from them."""
    m = machine(device, pool=2, window_ns=1)
    m.edge(A, True)
    device.work(20 * MS)
    m.edge(BETWEEN)
    device.think(50 * MS)
    m.edge(B, True)  # would close it
    m.edge(BETWEEN)
    m.poll(closing=True)
    assert (m.dropped, m.windows, m.numbers()["unresolved"]) == (1, 0, 0)
    device.think(2_000 * MS)
    m.edge(C, True)
    assert m.marks == 3
    assert device.made == 2


def test_the_end_comes_back_later_where_another_thread_is_at_work(device):
    m = machine(device)
    m.edge(A, True)
    device.work(MS)
    m.edge(BETWEEN)
    device.think(10 * MS)
    assert m._alone()
    assert not m.poll(closing=True)
    m._turns.append(None)
    assert m.poll(closing=True)
    assert m.windows == 1


@pytest.mark.parametrize("order", [[0, 1] * 50, [0] * 50 + [1] * 50], ids=["in turns", "one after the other"])
def test_events_stay_with_the_device_they_were_first_recorded_on(device, order):
    notes: list[str] = []
    m = machine(device, notes, window_ns=20 * MS, pool=28)
    for number in order:
        device.stream = (number, 0)
        m.edge((A, B)[number], True)
        device.work(2 * MS)
        m.edge(BETWEEN)
        device.think(5 * MS)
    m.poll(closing=True)
    assert not notes
    assert m.windows > 10
    assert m.labels[A].spans == m.labels[B].spans == 50
    assert m.labels[A].least_ns == pytest.approx(100 * MS, rel=0.1)
    assert m.labels[B].least_ns == pytest.approx(100 * MS, rel=0.1)
