"""The stack sampler in Python: which line every thread is at, some hundred times a second; see `record/native/sampler.h`.

What lives here: a thread that looks at `sys._current_frames()`. It gets the interpreter only where others let go of it, so its
samples lean towards calls that do; the native one does not. For the same reason no other thread runs Python while it looks:
whether one is at work is told by the processor time it used since the last look (Linux only), and who waits for the interpreter
or has it is out of reach. Frames of this recorder are left out of the stacks, and so is the sampler itself.

Invariant: it writes only into blocks that were made for it before it started, and it ends before the shard does.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Iterable
from itertools import islice
from types import CodeType, FrameType

from ...model.shard import BLOCKED, RUNNING, UNKNOWN
from ...store import schema as s
from ...store.writer import Block
from .tree import Track, state

NO_TRACK = (1 << 32) - 1
UNITS, CHILD_UNITS, STRING_UNITS = 6, 1, 3
LEAST_USED, LEAST_OF_LEFT = 0.05, 0.5  # as in states.h: of the time, and of what the others left of it
_OURS = os.path.dirname(__file__) + os.sep


class FullError(Exception):
    """There is no room for another place or stack."""


class Sampler:
    """Looks at all threads until told to stop."""

    def __init__(self, interval_ns: int, places: Block, stacks: Block, samples: Block, strings: Block) -> None:
        self.interval_ns = interval_ns
        self._places, self._stacks, self._samples, self._strings = places, stacks, samples, strings
        self._strings_used = 0
        strings.used = strings.capacity  # names of the recorder go elsewhere: it does not wait for us, nor we for it
        self._place_ids: dict[tuple[CodeType, int], int] = {}
        self._stack_ids: dict[tuple[int, int], int] = {}
        self._sample_ids: dict[tuple[int, int, int], int] = {}
        self._cpu_ns: dict[int, int] = {}  # by native number of the thread
        self._looked_ns = 0
        self._string_ids: dict[bytes, int] = {}
        self._stop, self._ended = allocate_lock(), allocate_lock()
        self._ident = 0
        self._looks, self._weight = 0, 1  # intervals a look stands for
        self._random = state.head[s.H_SHARD_ID]

    # ---- life ----

    def start(self) -> None:
        self._stop.acquire()
        self._ended.acquire()
        start_new_thread(self._run, ())

    def stop(self) -> None:
        self._stop.release()
        with self._ended:
            pass

    def _run(self) -> None:
        try:
            self._ident = get_ident()
            while not self._stop.acquire(timeout=self._next_interval_s()):
                if state.gen_on:
                    self._look()
        except Exception:  # the interpreter goes down, or a fault of ours
            state.lose("internal")
        finally:
            self._ended.release()

    def _next_interval_s(self) -> float:
        """It varies by half each way, so that it never runs in step with the loop it looks at."""
        self._random = (self._random * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        return (0.5 + (self._random >> 33) / (1 << 31)) * self.interval_ns * self._weight / 1e9

    # ---- one look ----

    def _look(self) -> None:
        tracks = {track.ident: track for track in state.live_tracks()}
        frames = sys._current_frames()
        states = self._read_states(frames, tracks)
        for ident, frame in frames.items():
            if ident == self._ident:
                continue
            try:
                self._see(frame, tracks.get(ident), states.get(ident, UNKNOWN))
            except FullError:
                state.head[s.H_SAMPLE_LOST] += 1
        state.head[s.H_SAMPLE_TICKS] += self._weight
        state.head[s.H_SEEN_NS] = state.clock()
        self._looks += 1
        if self._looks % s.SLOWER_EVERY == 0 and self._weight < s.SLOWEST:
            self._weight *= 2

    def _read_states(self, idents: Iterable[int], tracks: dict[int, Track]) -> dict[int, int]:
        """What each thread did since the last look: it was running if it used half of what the others left of the time, and at
        least a twentieth of all. A thread without a clock, or seen for the first time, is left out."""
        if sys.platform != "linux":
            return {}
        at_ns = time.monotonic_ns()
        since_ns, self._looked_ns = at_ns - self._looked_ns, at_ns
        known, self._cpu_ns = self._cpu_ns, {}
        threads = getattr(sys.modules.get("threading"), "_active", {})
        used: dict[int, int] = {}
        for ident in idents:
            own = ident == self._ident
            native_id = tracks[ident].native_id if ident in tracks else getattr(threads.get(ident), "native_id", None) or 0
            if not own and not native_id:
                continue
            try:  # the kernel has a clock for each thread of ours
                cpu_ns = time.thread_time_ns() if own else time.clock_gettime_ns(~native_id << 3 | 6)
            except OSError:  # it has ended
                continue
            self._cpu_ns[native_id] = cpu_ns
            if native_id in known:
                used[ident] = cpu_ns - known[native_id]
        everyone = sum(used.values())
        return {
            ident: RUNNING if ns >= LEAST_USED * since_ns and ns >= LEAST_OF_LEFT * (since_ns - (everyone - ns)) else BLOCKED
            for ident, ns in used.items()
        }

    def _see(self, frame: FrameType | None, track: Track | None, what: int) -> None:
        path = (track.top.path if track is not None else 0) | what << s.SAMPLE_STATE_SHIFT
        if not state.in_loop:
            path |= s.SAMPLE_EARLY
        seen: list[int] = []
        while frame is not None and len(seen) < s.DEEPEST:
            if not frame.f_code.co_filename.startswith(_OURS):
                seen.append(self._place_of(frame.f_code, frame.f_lasti))
            frame = frame.f_back
        stack = -1
        for place in reversed(seen):
            stack = self._stack_of(stack, place)
        if stack >= 0:
            self._count(stack, path, NO_TRACK if track is None else track.id)

    def _count(self, stack: int, path: int, track: int) -> None:
        key = (stack, path, track)
        number = self._sample_ids.get(key)
        if number is None:
            number = self._sample_ids[key] = _put(self._samples, (stack | path << 32, track))
        self._samples.words[s.HEAD_WORDS + number * s.SAMPLE_WORDS + 1] += self._weight << 32

    def _stack_of(self, parent: int, place: int) -> int:
        known = self._stack_ids.get((parent, place))
        if known is None:
            known = self._stack_ids[parent, place] = _put(self._stacks, (parent + 1 | place << 32,))
        return known

    def _place_of(self, code: CodeType, instruction: int) -> int:
        known = self._place_ids.get((code, instruction))
        if known is None:
            file, function = self._text(code.co_filename), self._text(code.co_qualname)
            line, last, column, end = next(islice(code.co_positions(), max(0, instruction) // 2, None), (None,) * 4)
            lines = (line or code.co_firstlineno) | code.co_firstlineno << 32
            columns = 0
            if column is not None and end is not None:
                columns = column + 1 | (end + 1 | (last or 0) - (line or 0) << 16) << 32
            known = self._place_ids[code, instruction] = _put(self._places, (*file, *function, lines, columns))
        return known

    def _text(self, text: str) -> tuple[int, int]:
        """Where a string is kept, and how long it is there."""
        data = text[: s.MOST_NAME].encode("ascii", "replace")
        at = self._string_ids.get(data)
        if at is None:
            at, block = s.HEAD_WORDS * 8 + self._strings_used, self._strings
            if at + len(data) > len(block.buffer):
                raise FullError
            block.buffer[at : at + len(data)] = data
            self._strings_used += len(data)
            block.words[s.HEAD_USED] = self._strings_used
            self._string_ids[data] = at
        return self._strings.offset + at, len(data)


def _put(block: Block, words: tuple[int, ...]) -> int:
    """The next item of one of our blocks; answers its number."""
    if block.used == block.capacity:
        raise FullError
    number = block.used
    at = s.HEAD_WORDS + number * len(words)
    for index, word in enumerate(words, at):
        block.words[index] = word
    block.publish(1)
    return number


# ---- the one of this process ----

_running: list[Sampler] = []


def start() -> None:
    """Start sampling, if the recording asks for it; the shard has just been made."""
    options, shard = state.options, state.shard
    interval_us = state.option("sample_us")
    if not interval_us or options["clock"] == s.CLOCK_TEST or shard is None:
        return
    units, string_units = (CHILD_UNITS, CHILD_UNITS) if options["is_child"] else (UNITS, STRING_UNITS)
    if not shard.has_room(4 * (3 * units + string_units + 1) * s.BLOCK_BYTES):
        return  # spans come first
    samples, stacks, places = (shard.block(kind, units) for kind in (s.SAMPLES, s.STACKS, s.PLACES))
    strings = shard.block(s.STRINGS, string_units)
    if places is None or stacks is None or samples is None or strings is None:
        return
    sampler = Sampler(interval_us * 1000, places, stacks, samples, strings)
    try:
        sampler.start()
    except RuntimeError:  # no thread to be had
        return
    state.head[s.H_SAMPLE_NS] = sampler.interval_ns
    _running.append(sampler)


def stop() -> None:
    while _running:
        _running.pop().stop()


def forget() -> None:
    """A forked child has no sampler yet: threads stay with the parent."""
    _running.clear()
