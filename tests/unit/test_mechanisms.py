"""What time is spent on: decided by what was measured, the same in every view, adding up to the loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.mechanisms import Mechanisms, callee
from hotloop.model import shard as m
from hotloop.model.mechanism import MECHANISMS
from hotloop.model.session import Source

from .loops import FILE, LIBRARY, make_session

ENV, POLICY, BACKWARD, SLEEP = 2, 4, 7, 3  # paths of the loop by hand
TEXT = "    y = np.stack(rows); z = model(x).item(); names.sort()"
STACK, ITEM, SORT = (8, 22), (28, 43), (45, 57)  # columns of the three calls


def place(columns: tuple[int, int] = (0, 0), file: str = FILE, line: int = 11) -> m.Place:
    return m.Place(file, "Grid.step", line, 10, columns)


def session_of(*samples: m.Sample, places: tuple[m.Place, ...]):
    session = make_session()
    stacks = tuple((-1, i) for i in range(len(places)))
    shard = replace(session.shards[0], samples=m.Samples(1_000_000, 100, 0, places, stacks, samples))
    return replace(session, shards=(shard,), sources={FILE: Source(text={11: TEXT})})


def seen(path: int, times: int, gil: bool, call: int, stack: int = 0, state: int = m.RUNNING) -> m.Sample:
    return m.Sample(stack, path, 0, times, False, state, gil, call)


def decide(*samples: m.Sample, places: tuple[m.Place, ...] = (place(),)) -> list[str]:
    """The mechanism of every stack, in the order of the samples."""
    diagnosis = diagnose(session_of(*samples, places=places))
    return [max(diagnosis.mechanisms.of(stack), key=lambda share: share[1])[0] for stack in diagnosis.stacks]


@pytest.mark.parametrize(
    ("sample", "mechanism"),
    [
        (seen(ENV, 10, True, m.SHORT), "interpreting"),
        (seen(ENV, 10, False, m.SHORT), "dispatching"),
        (seen(ENV, 10, False, m.LASTING), "computing"),
        (seen(ENV, 10, True, 0, state=m.BLOCKED), "waiting"),
        (seen(ENV, 10, False, 0, state=m.WANTS_GIL), "waiting"),
        (seen(SLEEP, 10, False, 0), "waiting"),
    ],
)
def test_a_sample_is_what_the_thread_did(sample, mechanism):
    assert decide(sample, places=(place(line=12),)) == [mechanism]


def test_a_call_that_gives_the_interpreter_away_now_and_then_is_native_also_while_it_has_it():
    assert decide(seen(ENV, 6, True, m.SHORT), seen(ENV, 4, False, m.SHORT), places=(place(line=12),)) == ["dispatching"] * 2


def test_a_loop_of_small_calls_that_meets_the_same_one_again_is_still_dispatching():
    found = decide(seen(ENV, 83, False, m.SHORT), seen(ENV, 17, False, m.LASTING), places=(place(line=12),))
    assert found == ["dispatching"] * 2


def test_an_instruction_seen_too_seldom_is_judged_by_its_function():
    rare, usual = place((0, 5), line=12), place((6, 9), line=13)
    found = decide(
        seen(ENV, 1, False, m.SHORT), seen(ENV, 20, False, m.LASTING, stack=1), places=(rare, usual),
    )  # fmt: skip
    assert found == ["computing", "computing"]


def test_calls_that_put_bytes_elsewhere_and_last_are_moving():
    assert decide(seen(ENV, 10, False, m.LASTING), places=(place(STACK),)) == ["moving"]
    assert decide(seen(ENV, 10, False, m.SHORT), places=(place(STACK),)) == ["dispatching"]


def test_pythons_own_functions_are_interpreting_however_long_they_take():
    assert decide(seen(ENV, 10, True, m.LASTING), places=(place(SORT),)) == ["interpreting"]


def test_what_runs_in_a_tensor_librarys_file_is_dispatching_or_computing():
    inside = (place(file=LIBRARY),)
    assert decide(seen(POLICY, 10, True, m.SHORT), places=inside) == ["dispatching"]
    assert decide(seen(POLICY, 10, False, m.LASTING), places=inside) == ["computing"]


def test_a_backward_pass_computes_as_its_forward_pass_does():
    """One native call with many small ones inside: that it lasts proves nothing."""
    assert decide(seen(BACKWARD, 10, False, m.LASTING)) == ["dispatching"]


def test_without_states_tensor_calls_are_dispatching_and_the_rest_interpreting():
    unknown = seen(ENV, 10, False, 0, state=m.UNKNOWN)
    assert decide(unknown, places=(place(line=12),)) == ["interpreting"]
    assert decide(unknown, places=(place(file=LIBRARY),)) == ["dispatching"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("torch.stack([f(x) for x in xs])", "stack"),
        ("net(x).sum(dim=(0, 1))", "sum"),
        ("a + b", ""),
        ("f(x)[0]", ""),
        (")", ""),
        ("((", ""),
    ],
)
def test_the_function_an_expression_calls_last(text, name):
    assert callee(text) == name


samples = st.lists(
    st.builds(
        seen,
        st.sampled_from([ENV, POLICY, BACKWARD, SLEEP, 0, 5, 6]),
        st.integers(1, 50),
        st.booleans(),
        st.sampled_from([0, m.SHORT, m.LASTING]),
        st.integers(0, 2),
        st.sampled_from([m.UNKNOWN, m.RUNNING, m.BLOCKED, m.WANTS_GIL]),
    ),
    max_size=12,
    unique_by=lambda x: (x.stack, x.path, x.state, x.holds_gil, x.call),
)


@settings(max_examples=60, deadline=None)
@given(samples)
def test_mechanisms_add_up_to_the_loop_whatever_was_seen(found):
    places = (place(STACK), place(file=LIBRARY), place(line=12))
    diagnosis = diagnose(session_of(*found, places=places))
    limits = diagnosis.limits
    assert sum(limits.mechanisms.values()) == diagnosis.phases.loop_ns - diagnosis.phases.profiler_ns
    assert set(limits.mechanisms) <= set(MECHANISMS)
    for row, phase in zip(limits.phases, diagnosis.phases.phases, strict=True):
        assert sum(row.mechanisms.values()) == row.ns == phase.total_ns
        assert row.batched_ns <= row.limit_ns <= row.ns
    for stack in diagnosis.stacks:
        assert sum(share for _, share in diagnosis.mechanisms.of(stack)) == pytest.approx(1)
    assert 1 <= limits.headroom <= limits.batched


def test_the_expression_is_the_part_of_the_line_that_was_at_work():
    diagnosis = diagnose(session_of(seen(ENV, 1, True, 0), places=(place(ITEM),)))
    assert isinstance(diagnosis.mechanisms, Mechanisms)
    assert diagnosis.mechanisms.expression(place(ITEM)) == "model(x).item()"
    assert diagnosis.mechanisms.expression(place()) == TEXT
    assert diagnosis.mechanisms.expression(place(file="/elsewhere.py")) == ""
