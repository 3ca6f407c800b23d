"""The stack samples of a shard. Standard library only.

What lives here: places, stacks and counts as the sampler left them. Invariant: every number refers to something that is there;
what does not is left out and counted. Stacks refer to earlier stacks only, so none is a circle.
"""

from __future__ import annotations

from ..model import shard as m
from . import schema as s
from .blocks import MAX_NS, U32, Blocks

_MOST = 1 << 40
_DEEPEST = 200


def read_places(d: Blocks) -> tuple[m.Place, ...]:
    """The lines the sampler saw."""
    return tuple(
        m.Place(d.name(file, file_bytes), d.name(function, function_bytes), line, first_line, _columns(column, ends))
        for file, file_bytes, function, function_bytes, line, first_line, column, ends in d.items(s.PLACES)
    )


def _columns(column: int, ends: int) -> tuple[int, int]:
    """Of an expression on one line, counted from 0; (0, 0) where it is on several, or not known."""
    return (column - 1, ends - 1) if 0 < column < ends <= 0xFFFF else (0, 0)


def read_samples(d: Blocks, paths: int, tracks: int) -> m.Samples:
    """What the sampler saw in this process."""
    if not d.head[s.H_SAMPLE_NS]:
        return m.Samples()
    places = read_places(d)
    stacks: list[tuple[int, int]] = []
    depths: list[int] = []
    bad = 0
    for parent_plus_one, place in d.items(s.STACKS):
        parent = parent_plus_one - 1
        deep = depths[parent] + 1 if 0 <= parent < len(stacks) else 1
        if place >= len(places) or parent >= len(stacks) or deep > _DEEPEST:
            break
        stacks.append((parent, place))
        depths.append(deep)
    counts = []
    for stack, path, track, count in d.items(s.SAMPLES):
        early, holds_gil = bool(path & s.SAMPLE_EARLY), bool(path & s.SAMPLE_HOLDS_GIL)
        state, call, path = path >> s.SAMPLE_STATE_SHIFT & 3, path >> s.SAMPLE_CALL_SHIFT & 3, path & s.SAMPLE_PATH_MASK
        if stack >= len(stacks) or path >= paths or (track >= tracks and track != U32):
            bad += 1
        elif count:
            counts.append(m.Sample(stack, path, -1 if track == U32 else track, count, early, state, holds_gil, call))
    d.left_out(bad, "stack samples refer to what is not there and are left out")
    return m.Samples(
        interval_ns=d.word(s.H_SAMPLE_NS, MAX_NS, "interval of the sampler"),
        ticks=d.word(s.H_SAMPLE_TICKS, _MOST, "number of samples"),
        lost=d.word(s.H_SAMPLE_LOST, _MOST, "number of lost samples"),
        places=places, stacks=tuple(stacks), counts=tuple(counts),
    )  # fmt: skip
