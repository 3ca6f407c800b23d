"""probes.json, machine.json and predictions.jsonl: what anyone may have written is read, or left out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.model.finding import Gain
from hotloop.model.history import History, Outcome, parse_outcome
from hotloop.model.machine import Machine
from hotloop.model.probe import Curve, Point, Probes
from hotloop.store.machine import keep, machine_data, read_kept, read_machine
from hotloop.store.predictions import add_outcomes, predictions_file, read_outcomes
from hotloop.store.probes import read_probes

CURVE = {
    "network": "Net", "method": "", "phase": 1, "rows": 1, "seen": 9, "mean_rows": 1.0, "grad": False, "parameters": 400,
    "points": [[1, 100e3, 1e3], [8, 120e3, 1e3], [64, 300e3, 2e3]], "variants": {"no_grad": [90e3, 1e3]},
}  # fmt: skip
OPTIMIZER = {"name": "Adam", "tensors": 12, "bytes": 400, "ns": [300e3, 1e3], "variants": {"fused": [80e3, 1.0]}}
GOOD = {"version": 1, "threads": 2, "seconds": 0.5, "curves": [CURVE], "notes": ["one"], "optimizers": [OPTIMIZER]}
LEAVES = st.none() | st.booleans() | st.floats(allow_nan=True) | st.text(max_size=5)
JSON = st.recursive(
    LEAVES, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(list(GOOD)), x, max_size=4), max_leaves=20
)


def test_what_was_measured_is_read_back():
    probes = read_probes(json.dumps(GOOD).encode())
    (curve,) = probes.curves
    assert curve.points[1] == Point(8, 120e3, 1e3)
    assert curve.variants == {"no_grad": 90e3}
    assert probes.optimizers[0].variants == {"fused": 80e3}
    assert (probes.threads, probes.notes) == (2, ("one",))


@pytest.mark.parametrize(
    "points",
    [[[8, 1.0, 0.0], [4, 2.0, 0.0]], [[1, -5.0, 0.0]], [[1, float("1e300"), 0.0]], [[True, 1.0, 0.0]], [["1", 1.0, 0.0]]],
)
def test_points_that_make_no_sense_are_left_out(points):
    found = read_probes(json.dumps({**GOOD, "curves": [{**CURVE, "points": points}]}).encode())
    assert all(len(curve.points) == 1 for curve in found.curves) or not found.curves


@given(st.binary(max_size=200))
def test_any_bytes_are_a_file_without_probes(data):
    assert isinstance(read_probes(data), Probes)
    assert isinstance(read_machine(data), Machine)


@given(JSON)
def test_any_json_is_read_or_left_out(value):
    assert isinstance(read_probes(json.dumps(value).encode()), Probes)
    assert isinstance(read_machine(json.dumps(value).encode()), Machine)
    assert parse_outcome(value) is None or isinstance(parse_outcome(value), Outcome)


def test_a_curve_goes_through_its_points_and_on_beyond_them():
    (curve,) = read_probes(json.dumps(GOOD).encode()).curves
    assert curve.cost(1) == 100e3 and curve.cost(8) == 120e3 and curve.cost(64) == 300e3
    assert curve.cost(4) == pytest.approx(100e3 + 20e3 * 3 / 7)
    assert curve.cost(120) == pytest.approx(300e3 + 56 * curve.marginal_ns)
    assert curve.cost(0.1) == 100e3
    assert 0.9 < curve.fixed_share <= 1


def test_a_curve_of_one_point_promises_nothing_for_larger_calls():
    curve = Curve("Net", "", 1, 4, 4.0, 1, False, 0, (Point(4, 100.0, 0.0),))
    assert curve.cost(8) == 200.0


def test_a_curve_that_falls_is_taken_as_flat():
    curve = Curve("Net", "", 1, 1, 1.0, 1, False, 0, (Point(1, 100.0, 0.0), Point(8, 90.0, 0.0)))
    assert curve.cost(16) <= 100.0 and curve.marginal_ns == 0


def outcome(mid: float = 2.0, actual: float = 2.0, cause: str = "hot-code") -> Outcome:
    return Outcome(cause, "interpreting", "train.py", 0.5, mid * 0.8, mid, mid * 1.2, actual, actual * 0.9, actual * 1.1, 1.0)


def test_predictions_are_kept_and_read_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert read_outcomes() == ()
    assert add_outcomes([]) is None and not predictions_file().exists()
    add_outcomes([outcome(actual=1.5)])
    add_outcomes([outcome(actual=3.0)])
    with predictions_file().open("a") as file:
        file.write("not json\n[1]\n")
    assert [x.actual for x in read_outcomes()] == [1.5, 3.0]


def test_few_outcomes_leave_a_prediction_as_it_is_and_many_move_it():
    gain = Gain(1.5, 2.0, 2.5)
    assert History((outcome(actual=1.2),) * 4).correct("hot-code", gain) == gain
    assert History((outcome(actual=1.2),) * 20).correct("env-step-hot", gain) == gain
    moved = History((outcome(actual=1.2),) * 20).correct("hot-code", gain)
    assert moved.low < moved.mid < 1.6 and moved.low <= 1.3
    right = History((outcome(actual=2.0),) * 20).correct("hot-code", gain)
    assert right.mid == pytest.approx(2.0) and right.high - right.low < gain.high - gain.low


def test_constants_are_kept_by_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert read_kept("a") is None
    keep("a", Machine(call_ns=50.0))
    path = keep("b", Machine(call_ns=70.0, pipe_us=3.0))
    assert read_kept("a") == Machine(call_ns=50.0) and read_kept("b") == Machine(call_ns=70.0, pipe_us=3.0)
    path.write_text("{")
    assert read_kept("a") is None
    assert read_machine(json.dumps(machine_data(Machine(call_ns=50.0))).encode()) == Machine(call_ns=50.0)
