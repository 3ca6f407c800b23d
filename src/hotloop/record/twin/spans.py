"""A span is entered, a span is left.

See `record/native/hot.h` for the reasons. A signal handler may run between any two lines here, so a track is
marked busy while it is changed: a span opened by such a handler in that moment is dropped and counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from struct import Struct
from types import FrameType
from typing import Any

from ...model import shard as m
from ...model.histogram import bucket_of
from ...model.phase import LOG
from ...store import schema as s
from ..memory import resident_bytes
from .tree import BUSY, NEVER, Frame, Node, Track, find_child, place_label, state, touch

# Native formats: each field is one 8-byte store. The whole is zeroed first, so nothing that publishes may be among them.
JOURNAL = Struct("@" + s.format_of(s.RECORDS["Journal"])).pack_into
EVENT = Struct("@QQQQ").pack_into
LOCAL = state.local
ENTERED = (1 << s.STATE_ENTERED_SHIFT) + 2
UINT32_MAX = (1 << 32) - 1
GENERATOR_FLAGS = 0x20 | 0x200  # CO_GENERATOR, CO_ASYNC_GENERATOR


def put_event(track: Track, node: Node, start: int, duration: int, flags: int) -> None:
    event = (start, duration, node.path | track.id << 32, state.iteration | flags << 32)
    if state.log_left:
        with state.lock:
            block = state.log
            if block is None or block.used == block.capacity:
                assert state.shard is not None
                block = state.log = state.shard.block(s.EVENTS)
                track.charge(state.clock())  # making room is our time, not the span's
            if block is not None and state.log_left:
                state.log_left -= 1
                state.log_room -= 1
                EVENT(block.buffer, (s.HEAD_WORDS + block.used * s.EVENT_WORDS) * 8, *event)
                block.publish(1)
                return
            state.log_left = state.log_room = 0
    if state.ring is not None:
        head = state.ring_head
        state.ring_head = head + 1
        EVENT(state.ring.buffer, (s.HEAD_WORDS + (head & state.ring_mask) * s.EVENT_WORDS) * 8, *event)
        state.head[s.H_RING_HEAD] = head + 1


def measure_enter(track: Track, frame: Frame) -> None:
    """Now and then: where all cores are busy, a thread that calls the kernel gives its core away there and then."""
    if frame.node.label.kind == m.OVERFLOW:
        state.lose("label_overflow")
    node = frame.node
    if node.long and not (node.measured and frame.start - node.measured < s.MEASURED_EVERY * state.long_ns):
        node.measured = frame.start
        frame.rss = resident_bytes()
        frame.cpu_ns = time.thread_time_ns()
        frame.measured = True
        track.charge_reading()


def measure_exit(track: Track, frame: Frame, at: int) -> int:
    """The readings at the end of a span; answers when they were done."""
    node = frame.node
    node.add(s.N_CPU_NS, time.thread_time_ns() - frame.cpu_ns)
    rss = resident_bytes()
    track.settle(at)
    track.charge_reading()
    node.add(s.N_CPU_WALL_NS, track.last - frame.start - frame.own)
    if not node[s.N_MEM_CALLS] & UINT32_MAX:  # where true peaks are asked for, end points add nothing
        note_rise(node, max(0, rss - frame.rss))
        node.add(s.N_MEM_CALLS, 1 << 32)
    node[s.N_MEM_RSS_MAX] = max(node[s.N_MEM_RSS_MAX], rss)
    return track.last


def note_rise(node: Node, rise: int) -> None:
    node[s.N_MEM_RISE_MAX] = max(node[s.N_MEM_RISE_MAX], rise)
    node.add(s.N_MEM_RISE_SUM, rise)


def current_track() -> Track | None:
    """The recording track of this thread, or None."""
    track: Track | None = LOCAL.track
    return track if track is not None and track.gen == state.gen_on else None


def awake(drops: bool = True) -> Track | None:
    """As current_track(), but the recording may begin here. None: do not record, which drops a span in a signal handler."""
    track: Track | None = LOCAL.track
    if track is None or track.gen not in (BUSY, state.gen_on):
        from .session import wake

        return wake()
    if track.gen == BUSY:
        if drops:
            state.lose("dropped_reentrant")
        return None
    return track


def push(track: Track, zone: Zone, node: Node, at: int) -> Frame:
    frame = Frame(zone, node, track.top, at)
    for other in track.frames:
        if other.node.label is node.label:
            frame.reentry = True
    if node.work != state.work:
        node.note_work()
    if len(track.frames) >= s.TRACK_FRAMES:
        state.lose("deep")
    track.put(frame)
    if not frame.reentry:
        node.label.opened(at)
    track.state += ENTERED
    track.words[track.at + s.T_STATE] = track.state
    return frame


def close_top(track: Track, at: int) -> None:
    try:
        frame = track.frames.pop()  # at once: where recording ends, another thread may be about to close it too
    except IndexError:
        return
    node, label = frame.node, frame.node.label
    if frame.measured:
        at = measure_exit(track, frame, at)
    track.settle(at)
    duration = at - frame.start - frame.own
    if duration >= state.long_ns:
        node.long = True
    elif frame.measured and duration < state.long_ns // 8:
        node.long = False
    words, doubles, ints, first = node.words, node.block.doubles, node.block.ints, node.at
    bucket = (first + s.N_HIST) * 2 + bucket_of(duration)
    if ints[bucket] == UINT32_MAX:
        halve_histogram(node)
    hist = ints[bucket] + 1
    count = words[first + s.N_COUNT] + 1
    total = words[first + s.N_TOTAL_NS] + (0 if frame.reentry else duration)
    squares = doubles[first + s.N_SUMSQ] + duration * duration
    if not frame.reentry:
        label.closed(at)
    journal, state_at = (track.at + s.T_JOURNAL) * 8, track.at + s.T_STATE
    JOURNAL(track.block.buffer, journal, node.id, duration, count, total, squares, hist, label.union_ns)
    # From here no function is called, so that no signal handler can raise before it is done.
    track.words[state_at] = track.state | 1
    words[first + s.N_COUNT] = count
    words[first + s.N_TOTAL_NS] = total
    doubles[first + s.N_SUMSQ] = squares
    if duration < words[first + s.N_MIN_NS]:
        words[first + s.N_MIN_NS] = duration
    if duration > words[first + s.N_MAX_NS]:
        words[first + s.N_MAX_NS] = duration
    ints[bucket] = hist
    label.words[label.at + s.L_UNION_NS] = label.union_ns
    track.state -= 2
    track.words[state_at] = track.state
    track.top = frame.below
    # Until here.
    touch(node)
    if frame.resumed:
        put_event(track, node, frame.resumed, at - frame.resumed, s.EVENT_SEGMENT)
    else:
        put_event(track, node, frame.start, at - frame.start, 0)


def halve_histogram(node: Node) -> None:
    first = (node.at + s.N_HIST) * 2
    for i in range(first, first + s.HIST_BUCKETS):
        node.block.ints[i] >>= 1
    node.add(s.N_HIST_SHIFT, 1)


def tell_edge(track: Track, entered: int) -> None:
    """A span began or ended, and a device's events are to be placed there. Our time."""
    if LOCAL.telling or state.on_edge is None or track.gen != state.gen_on:
        return
    LOCAL.telling, call = True, state.on_edge
    try:
        due = call((state.head[s.H_SHARD_ID], track.top.path), entered)
    except Exception:
        state.lose("internal")
        due = NEVER
    finally:
        LOCAL.telling = False
    if state.on_edge is call:
        state.edges_from = due
    if track.gen == state.gen_on:
        track.charge(state.clock())


def exit_odd(track: Track, zone: Zone) -> None:
    """The top is not this zone's: close down to it if it is on the stack, else note an exit without an enter."""
    if any(frame.zone is zone for frame in track.frames):
        while track.frames[-1].zone is not zone:
            close_top(track, state.clock())
            state.lose("unbalanced")
            track.inherited += 1
        close_top(track, state.clock())
    elif track.inherited:
        state.lose("inherited")
        track.inherited -= 1
    else:
        state.lose("stray_exit")


class Zone:
    """A named region: a context manager and a decorator, shared by all threads."""

    __slots__ = ("kind", "label", "marks", "name", "owns", "phase", "site")

    def __init__(self, name: str, kind: int = m.USER, phase: int = 0, owns: bool = False) -> None:
        self.name, self.kind, self.phase = name, kind, phase
        self.owns = owns  # its own time is work, also where it has parts
        self.marks = False  # its edges are told, see tell_edge()
        self.label: Any = None
        self.site: str | None = None  # file:line where it is first opened, or where its function begins

    def __repr__(self) -> str:
        return f"profile({self.name!r})"

    def __call__(self, function: Any) -> Any:
        return state.decorate(self, function) if state.decorate else wrap(self, function)

    def __enter__(self) -> Zone:
        track = awake()
        if track is None:
            return self
        gen = track.gen
        track.gen = BUSY
        try:
            node = track.top.children.get(self.label)
            if node is None:
                with state.lock:
                    if gen != state.gen_on:  # another thread began another recording meanwhile: `top` is none of its nodes
                        track.inherited += 1
                        return self
                    node = find_child(track, track.top, self)
                self._look_at_caller()
            at = state.clock()
            track.settle(at)
            frame = push(track, self, node, at)
            if node.long or node.label.kind == m.OVERFLOW:
                measure_enter(track, frame)
        except Exception:  # another thread stopped the recording under our feet
            state.lose("internal")
        finally:
            track.gen = gen
        if track.last >= state.edges_from and self.marks:
            tell_edge(track, 1)
        return self

    def __exit__(self, _type: object = None, _value: object = None, _traceback: object = None) -> None:
        track = current_track()
        if track is None:
            exit_off(LOCAL.track)
            return
        gen = track.gen
        track.gen = BUSY
        try:
            at = state.clock()
            if track.frames and track.frames[-1].zone is self:
                close_top(track, at)
            else:
                exit_odd(track, self)
        except Exception:
            state.lose("internal")
        finally:
            track.gen = gen
        if track.last >= state.edges_from and self.marks:
            tell_edge(track, 0)

    def _look_at_caller(self) -> None:
        """In a new place: is this span opened by a generator that yields inside it? Then its time is not its own."""
        if self.kind != m.USER:
            return
        frame = outside(sys._getframe(2))
        if self.site is None:
            self.site = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            with state.lock:
                place_label(self)
        suspends = frame.f_code.co_flags & GENERATOR_FLAGS
        site = state.yield_check(frame.f_code, frame.f_lasti) if suspends and state.yield_check is not None else None
        if site and state.shard is not None:
            data = site.encode("utf-8", "surrogatepass")
            with state.lock:
                offset = state.shard.string(data)
                self.label[s.L_SITE], self.label[s.L_SITE_BYTES] = offset, len(data) if offset else 0
                self.label[s.L_FLAGS] |= s.FLAG_HELD_ACROSS_YIELD


HOOKS_MODULE = f"{__package__}.hooks"


def outside(frame: FrameType) -> FrameType:
    """The script's frame: hooks are Python functions here, and stand between it and the recorder."""
    while frame.f_globals.get("__name__") == HOOKS_MODULE and frame.f_back is not None:
        frame = frame.f_back
    return frame


def exit_off(track: Track | None) -> None:
    """An exit while nothing is recorded on this thread: nothing is made for it, only counted."""
    if not state.gen_on or (track is not None and track.gen == BUSY):
        return
    if track is not None and track.frames:
        track.frames.pop()
        state.lose("inherited")
    elif track is not None and track.inherited:
        track.inherited -= 1
        state.lose("inherited")
    else:
        state.lose("stray_exit")


def profile(name: Any, track_memory: bool = False) -> Any:
    """A named region, as a context manager or a decorator."""
    zone = state.zones.get(name) if type(name) is str else None
    if zone is None:
        zone = zone_of(name)
    if track_memory and state.memory_span is not None:
        if zone.site is None:  # it will be opened by a frame of ours
            frame = sys._getframe(1)
            zone.site = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return state.memory_span(zone)
    return zone


def zone_of(name: Any) -> Zone:
    if type(name) is not str:
        state.lose("bad_name")
        try:
            name = str(name)
        except Exception:
            name = "(unnamed)"
    zone = state.zones.get(name)
    if zone is None:
        if len(state.zones) >= s.MAX_ZONES:
            return state.reserved["(more labels)"]
        zone = state.zones.setdefault(name, Zone(name))
        zone.marks = True
    return zone


state.reserved.update((name, Zone(name, kind)) for name, kind in s.RESERVED.values())
WRITE = s.RESERVED["WRITE"][0]
state.reserved[WRITE] = Zone(WRITE, m.USER, LOG, owns=True)


def wrap(zone: Zone, function: Callable[..., Any]) -> Callable[..., Any]:
    def profiled(*args: Any, **keywords: Any) -> Any:
        with zone:
            return function(*args, **keywords)

    return profiled
