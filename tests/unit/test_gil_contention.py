"""Who is accused of holding the interpreter: what was measured decides, and without that, as little as possible is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.findings.causes import gil_contention as rule
from hotloop.analyse.findings.evidence import Evidence
from hotloop.analyse.findings.rule import Candidate
from hotloop.model import shard as m

from .loops import FILE, LIBRARY, make_session

SCRIPT, LIBRARY_ONLY, TRAINING = 0, 1, 2  # stacks: the script's own thread; a library's; a span of the loop
ENV, BACKWARD = 2, 7  # paths


def session_of(*samples: m.Sample, native: bool = True, cores: int = 4):
    """The loop by hand with these samples in place of its own."""
    session = make_session(host={"cores": cores})
    places = (m.Place(FILE, "Monitor.run", 50, 40), m.Place(LIBRARY, "Writer.run", 9, 1), m.Place(FILE, "Grid.step", 11, 10))
    found = m.Samples(1_000_000, 100, 0, places, ((-1, 0), (-1, 1), (-1, 2)), samples)
    shard = replace(session.shards[0], samples=found, native=native)
    return replace(session, shards=(shard,))


def look(*samples: m.Sample, native: bool = True, cores: int = 4) -> Candidate | None:
    session = session_of(*samples, native=native, cores=cores)
    return rule.find(Evidence(diagnose(session)))


def main(times: int, state: int, holds_gil: bool = False) -> m.Sample:
    return m.Sample(TRAINING, BACKWARD, 0, times, False, state, holds_gil)


def other(times: int, state: int, holds_gil: bool = False, stack: int = SCRIPT) -> m.Sample:
    return m.Sample(stack, 0, -1, times, False, state, holds_gil)


def test_what_is_lost_is_what_the_training_thread_was_seen_waiting():
    found = look(
        main(70, m.RUNNING, True), main(30, m.WANTS_GIL), other(30, m.RUNNING, True), other(70, m.WANTS_GIL),
    )  # fmt: skip
    assert found is not None
    assert found.share == pytest.approx(0.3)
    assert (found.where.file, found.where.line, found.where.function) == (FILE, 50, "Monitor.run")
    assert found.gain is not None and found.gain.mid == pytest.approx(1 / 0.7)
    assert found.evidence[0] == "30 % of 100 samples of the training thread found it waiting for the interpreter"


def test_a_librarys_thread_that_was_seen_with_the_interpreter_is_named_too():
    found = look(main(70, m.RUNNING), main(30, m.WANTS_GIL), other(30, m.RUNNING, True, LIBRARY_ONLY))
    assert found is not None and found.where.function == "Writer.run"


@pytest.mark.parametrize("stack", [SCRIPT, LIBRARY_ONLY])
def test_a_thread_blocked_in_c_is_no_cause_whatever_its_function_is_called(stack):
    assert look(main(100, m.RUNNING, True), other(100, m.BLOCKED, stack=stack)) is None


def test_a_thread_that_computes_without_the_interpreter_is_no_cause():
    assert look(main(100, m.RUNNING, True), other(100, m.RUNNING)) is None


def test_a_thread_that_waits_for_the_training_threads_interpreter_is_no_cause():
    assert look(main(98, m.RUNNING, True), main(2, m.WANTS_GIL), other(98, m.WANTS_GIL), other(2, m.RUNNING, True)) is None


def test_moments_awake_without_the_interpreter_widen_the_gain_up_to_what_others_held():
    few = look(main(50, m.RUNNING, True), main(30, m.WANTS_GIL), main(20, m.RUNNING), other(40, m.RUNNING, True))
    assert few is not None and few.gain is not None
    assert few.share == pytest.approx(0.3)
    assert few.gain.mid == pytest.approx(1 / 0.65), "between 30 % and the 40 % that the other thread had it"


def test_a_handful_of_samples_accuses_nobody():
    assert look(main(5, m.RUNNING, True), main(5, m.WANTS_GIL), other(5, m.RUNNING, True)) is None


def test_threads_that_train_while_the_main_one_waits_lose_what_idle_cores_could_do():
    work = [
        m.Sample(TRAINING, BACKWARD, 1, 100, False, m.RUNNING, True),
        m.Sample(TRAINING, BACKWARD, 1, 300, False, m.WANTS_GIL),
    ]
    found = look(main(100, m.BLOCKED), *work, cores=2)
    assert found is not None
    assert found.share == pytest.approx(0.5), "one runs, two could"
    assert look(main(100, m.BLOCKED), *work, cores=1) is None, "there is no core to run on"


# ---- sessions that do not know who has the interpreter ----


def test_the_python_recorder_accuses_a_thread_of_the_script_that_used_the_processor():
    found = look(main(100, m.RUNNING), other(60, m.RUNNING), other(40, m.BLOCKED), native=False)
    assert found is not None
    assert found.share == pytest.approx(0.3)
    assert found.where.function == "Monitor.run"
    assert look(main(100, m.RUNNING), other(100, m.BLOCKED), native=False) is None


@pytest.mark.parametrize("state", [m.UNKNOWN, m.RUNNING])
def test_a_thread_with_nothing_of_the_scripts_in_its_stacks_is_not_accused_on_suspicion(state):
    assert look(main(100, state), other(100, state, stack=LIBRARY_ONLY), native=False) is None


def test_a_session_of_an_earlier_version_is_judged_by_known_waits():
    found = look(main(100, m.UNKNOWN), other(60, m.UNKNOWN))
    assert found is not None and found.share == pytest.approx(0.3)


# ---- the lines of other threads ----


def test_lines_of_other_threads_count_samples_at_work_only():
    at_work = other(7, m.RUNNING), other(3, m.WANTS_GIL)
    session = session_of(main(100, m.RUNNING, True), *at_work, other(90, m.BLOCKED), other(50, m.BLOCKED, stack=LIBRARY_ONLY))
    report = diagnose(session)
    assert [(x.function, x.samples, x.share) for x in report.other_lines] == [("Monitor.run", 10, 1.0)]
    assert sum(x.samples for x in report.lines) == 250, "nothing is lost from the lines themselves"


def test_lines_of_other_threads_count_all_samples_where_no_state_is_known():
    report = diagnose(session_of(main(100, m.UNKNOWN), other(7, m.UNKNOWN), other(90, m.UNKNOWN)))
    assert [(x.function, x.samples) for x in report.other_lines] == [("Monitor.run", 97)]
