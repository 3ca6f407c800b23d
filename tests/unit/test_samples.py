"""The decoder of stack samples: states, flags, and words that no recorder wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.model import shard as m
from hotloop.store import blocks
from hotloop.store import schema as s
from hotloop.store.samples import read_samples

HALF = st.integers(0, (1 << 32) - 1)


class Blocks:
    """As much of store.blocks.Blocks as the decoder asks for: one place, two stacks, and these samples."""

    def __init__(self, samples: list[tuple[int, ...]]) -> None:
        self.head = {s.H_SAMPLE_NS: 1000}
        self.problems: list[str] = []
        self._items: dict[int, list[tuple[int, ...]]] = {
            s.PLACES: [(0, 0, 0, 0, 7, 5, 9, 21)],
            s.STACKS: [(0, 0), (1, 0)],
            s.SAMPLES: samples,
        }

    left_out = blocks.Blocks.left_out

    def items(self, kind: int) -> list[tuple[int, ...]]:
        return self._items[kind]

    def name(self, at: int, size: int) -> str:
        return "x"

    def word(self, at: int, most: int, what: str) -> int:
        return self.head.get(at, 0)


def decode(*samples: tuple[int, ...]) -> tuple[m.Sample, ...]:
    return read_samples(Blocks(list(samples)), paths=3, tracks=1).counts  # type: ignore[arg-type]


def test_a_sample_of_an_earlier_version_has_no_state():
    assert decode((1, 2, 0, 5)) == (m.Sample(1, 2, 0, 5, False, m.UNKNOWN, False),)


def test_state_and_flags_lie_above_the_path():
    path = 2 | m.WANTS_GIL << s.SAMPLE_STATE_SHIFT | s.SAMPLE_EARLY
    assert decode((1, path, 0, 5)) == (m.Sample(1, 2, 0, 5, True, m.WANTS_GIL, False),)
    path = 2 | m.RUNNING << s.SAMPLE_STATE_SHIFT | s.SAMPLE_HOLDS_GIL
    assert decode((1, path, 0, 5)) == (m.Sample(1, 2, 0, 5, False, m.RUNNING, True),)


def test_how_long_a_call_ran_lies_between_path_and_state():
    path = 2 | m.LASTING << s.SAMPLE_CALL_SHIFT | m.RUNNING << s.SAMPLE_STATE_SHIFT
    assert decode((1, path, 0, 5)) == (m.Sample(1, 2, 0, 5, False, m.RUNNING, False, m.LASTING),)


@pytest.mark.parametrize(
    ("column", "ends", "columns"),
    [(9, 21, (8, 20)), (0, 0, (0, 0)), (9, 1 << 16 | 21, (0, 0)), (21, 9, (0, 0)), (2**32 - 1, 2**32 - 1, (0, 0))],
)
def test_columns_are_those_of_an_expression_on_one_line(column, ends, columns):
    found = Blocks([])
    found._items[s.PLACES] = [(0, 0, 0, 0, 7, 5, column, ends)]
    assert read_samples(found, paths=3, tracks=1).places[0].columns == columns  # type: ignore[arg-type]


def test_one_stack_in_several_states_is_several_samples():
    found = decode(*((1, 2 | state << s.SAMPLE_STATE_SHIFT, 0, 5) for state in range(4)))
    assert [x.state for x in found] == [m.UNKNOWN, m.RUNNING, m.BLOCKED, m.WANTS_GIL]
    assert sum(x.times for x in found) == 20


@given(st.lists(st.tuples(HALF, HALF, HALF, HALF), max_size=20))
def test_any_words_give_samples_that_refer_to_what_is_there(words):
    blocks = Blocks(words)
    found = read_samples(blocks, paths=3, tracks=1).counts  # type: ignore[arg-type]
    for x in found:
        assert (0 <= x.stack < 2, 0 <= x.path < 3, x.track in (-1, 0), x.state in range(4)) == (True,) * 4
    left_out = sum(times > 0 for *_, times in words) - len(found)
    assert left_out >= 0
    assert bool(blocks.problems) >= bool(left_out)
