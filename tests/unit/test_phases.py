"""Phases by lines, findings and what-ifs over small made-up evidence."""

from __future__ import annotations

import pytest

from hotloop.analyse.findings.engine import causes
from hotloop.analyse.findings.evidence import Evidence
from hotloop.analyse.findings.rule import predict
from hotloop.analyse.lines import guess_phase
from hotloop.analyse.whatif import parse_change
from hotloop.errors import UsageError
from hotloop.model.phase import COLLECT, LEARN, LOG
from hotloop.model.shard import Place

from .loops import make_loop

MAIN = "train.py"
# 1 while True:            blocks: 2-7 (the loop's body), 5-6 (the if's)
# 2     act, env.step
# 3     bookkeeping
# 4     if ready:
# 5         learn()
# 6         polyak()
# 7     log()
BLOCKS = {MAIN: ((2, 7), (5, 6))}
KNOWN = {(MAIN, "main"): {2: COLLECT, 5: LEARN}}


def at(line: int, function: str = "main", first: int = 1) -> Place:
    return Place(MAIN, function, line, first)


@pytest.mark.parametrize(("line", "phase"), [(2, COLLECT), (3, COLLECT), (5, LEARN), (6, LEARN)])
def test_a_line_belongs_to_the_event_of_its_block(line, phase):
    assert guess_phase([at(line)], KNOWN, BLOCKS) == phase


@pytest.mark.parametrize("host", [{"cores": "many"}, {"cores": -2}, {"cores": None}, ["cores"], "two"])
def test_a_host_that_says_nonsense_has_one_core(host):
    _, report = make_loop(host=host)
    assert report.findings == make_loop()[1].findings
    assert Evidence(report).host_cores == 1


def test_a_helper_without_events_is_judged_by_the_line_that_calls_it():
    assert guess_phase([at(6), at(20, "polyak", 18)], KNOWN, BLOCKS) == LEARN
    assert guess_phase([at(3), at(20, "polyak", 18)], KNOWN, BLOCKS) == COLLECT


def test_a_stack_that_no_event_explains_has_no_phase():
    assert guess_phase([at(20, "other", 18)], KNOWN, BLOCKS) == 0


def test_a_loop_between_collecting_and_learning_belongs_to_what_comes_next():
    # 1 for iteration:          blocks: 2-9, 3-4 (steps), 6-7 (advantages), 9-9 (updates)
    # 2     for step:
    # 3         env.step
    # 4         log
    # 5     for t in reversed:
    # 6         delta = ...
    # 7         advantage = ...
    # 8     for epoch:
    # 9         learn
    blocks = {MAIN: ((2, 9), (3, 4), (6, 7), (9, 9))}
    known = {(MAIN, "main"): {3: COLLECT, 4: LOG, 9: LEARN}}
    assert guess_phase([at(6)], known, blocks) == LEARN
    assert guess_phase([at(4)], known, blocks) == LOG


def test_a_line_that_logs_speaks_for_its_own_block_alone():
    blocks = {MAIN: ((2, 9), (5, 7))}
    known = {(MAIN, "main"): {2: COLLECT, 5: LOG, 9: LEARN}}
    assert guess_phase([at(6)], known, blocks) == LOG
    assert guess_phase([at(8)], known, blocks) == COLLECT


def test_gains_are_ordered_and_a_larger_share_gains_more():
    small, large = predict(0.2), predict(0.6)
    assert 1 < small.mid < large.mid


@pytest.mark.parametrize("text", ["env_step", "env_step=", "env_step=fast", "=2x", "env_step=0x", "a=-200%"])
def test_a_change_that_is_none_gets_a_sentence(text):
    with pytest.raises(UsageError, match=r"is no change|cannot"):
        parse_change(text)


def test_every_cause_has_a_page_and_an_action():
    for name, module in causes().items():
        text = module.__doc__ or ""
        assert "Recognised by:" in text, name
        assert "What to do:" in text, name
        assert module.ACTION, name
        assert callable(module.find), name
    assert len({module.TURN for module in causes().values()}) == len(causes())
