"""A span is entered, a span is left.

See `record/native/hot.h` for the reasons. A signal handler may run between any two lines here, so a track is
marked busy while it is changed: a span opened by such a handler in that moment is dropped and counted.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from struct import Struct
from types import FrameType
from typing import Any

from ...model import shard as m
from ...model.phase import LOG
from ...store import schema as s
from .tree import (
    BUSY,
    NEVER,
    Frame,
    Node,
    Track,
    find_child,
    place_label,
    state,
    touch,
)

# Native formats: each field is one 8-byte store. The whole is zeroed first, so nothing that publishes may be among them.
JOURNAL = Struct("@" + s.format_of(s.RECORDS["Journal"])).pack_into
EVENT = Struct("@QQQQ").pack_into
LOCAL = state.local
ENTERED = (1 << s.STATE_ENTERED_SHIFT) + 2
UINT32_MAX = (1 << 32) - 1
RING_HEAD, TRACK_FRAMES = s.H_RING_HEAD, s.TRACK_FRAMES
GENERATOR_FLAGS = 0x20 | 0x200  # CO_GENERATOR, CO_ASYNC_GENERATOR


def put_event(track: Track, node: Node, start: int, duration: int, flags: int) -> None:
    where, when = node.where, state.iteration | flags << 32
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
                EVENT(block.buffer, (s.HEAD_WORDS + block.used * s.EVENT_WORDS) * 8, start, duration, where, when)
                block.publish(1)
                return
            state.log_left = state.log_room = 0
    ring = state.ring
    if ring is not None:
        state.plain_ring = True
        head = state.ring_head
        state.ring_head = head + 1
        EVENT(ring.buffer, 64 + (head & state.ring_mask) * 32, start, duration, where, when)
        state.head[RING_HEAD] = head + 1


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return 0


def measure_enter(track: Track, frame: Frame) -> None:
    if frame.node.label.kind == m.OVERFLOW:
        state.lose("label_overflow")
    if frame.node.long:
        frame.rss = resident_bytes()
        frame.cpu_ns = time.thread_time_ns()
        frame.measured = frame.odd = True
        track.charge_reading()


def read_at_exit(track: Track, frame: Frame, at: int) -> int:
    """The readings at the end of a span, while it is still the innermost; answers when they were done."""
    frame.cpu_ns = time.thread_time_ns() - frame.cpu_ns
    frame.rss_end = resident_bytes()
    track.settle(at)
    frame.own += track.charge_reading()  # it is off the stack already
    return track.last


def measure_exit(frame: Frame, duration: int) -> None:
    node = frame.node
    if not frame.measured:
        return
    node.set_long(frame.zone, duration >= state.long_ns // 8)
    words, at = node.words, node.at
    words[at + s.N_CPU_NS] += frame.cpu_ns
    words[at + s.N_CPU_WALL_NS] += duration
    rss = frame.rss_end
    if not words[at + s.N_MEM_CALLS] & UINT32_MAX:
        rise = max(0, rss - frame.rss)
        words[at + s.N_MEM_RISE_MAX] = max(words[at + s.N_MEM_RISE_MAX], rise)
        words[at + s.N_MEM_RISE_SUM] += rise
        words[at + s.N_MEM_CALLS] += 1 << 32
    words[at + s.N_MEM_RSS_MAX] = max(words[at + s.N_MEM_RSS_MAX], rss)


def current_track() -> Track | None:
    """The recording track of this thread, or None."""
    track: Track | None = LOCAL.track
    return track if track is not None and track.gen == state.gen_on else None


def push(track: Track, zone: Zone, node: Node, at: int) -> Frame:
    depth = track.depth
    if depth == len(track.frames):
        track.frames.append(Frame(track.frames_at + 2 * depth))
        track.set_room()
    frame = track.frames[depth]
    frame.node = node
    frame.below = below = track.top
    frame.zone = zone
    frame.start = at
    if node.work != state.work:
        node.work, node.self_at_work, node.count_at_work = state.work, node.self_ns, node.count
    label = node.label
    if node.parent is not below or track.misplaced:
        frame.misplaced = depth > 0 and node.parent is not below
        track.set_misplaced(frame.misplaced)
        frame.reentry = any(other.node.label is label for other in track.frames[:depth])
        frame.odd = frame.misplaced or frame.reentry
    if depth < TRACK_FRAMES:
        frame.write(track.words)
    else:
        state.lose("deep")
    if not frame.reentry:
        label.opened(at)
    track.top = node
    track.depth = depth + 1
    track.words[track.state_at] = track.state = track.state + ENTERED
    return frame


def close_top(track: Track, at: int) -> None:
    track.depth = depth = track.depth - 1
    frame = track.frames[depth]
    node = frame.node
    words, doubles, ints, count_at, self_at, total_at, squares_at, bucket, label, ident = node.hot
    track_words, track_buffer, journal_at, state_at = track.hot
    start = frame.start
    duration = at - start
    total = node.total
    if frame.odd:
        if frame.measured:
            at = read_at_exit(track, frame, at)
        duration = at - start - frame.own
        measure_exit(frame, duration)
    if not frame.reentry:
        total += duration
        label.open = others = label.open - 1
        if not others and at > label.union_start:
            label.union_ns += at - label.union_start
    words[self_at] = node.self_ns = node.self_ns + (at - track.last)
    track.last = at
    if duration >= 16:
        bits = duration.bit_length()
        index = bits * 4 - 20 + (duration >> (bits - 3) & 3)
        bucket += index if index < 160 else 159
    hist = ints[bucket] + 1
    node.count = count = node.count + 1
    node.total = total
    node.squares = squares = node.squares + duration * duration
    value = track.state
    JOURNAL(track_buffer, journal_at, ident, duration, count, total, squares, hist, label.union_ns)
    track_words[state_at] = value | 1
    words[count_at] = count
    words[total_at] = total
    doubles[squares_at] = squares
    if duration < node.least:
        words[total_at + 1] = node.least = duration
    if duration > node.most:
        words[total_at + 2] = node.most = duration
        if duration >= state.long_ns:
            node.set_long(frame.zone, True)
    try:
        ints[bucket] = hist
    except ValueError:
        ints[bucket] = halve_histogram(node, bucket)
    label.words[label.union_at] = label.union_ns
    track_words[state_at] = track.state = value - 2
    track.top = frame.below
    if node.marked_in != state.mark:
        touch(node)
    if frame.odd:
        close_odd(track, frame, at)
    elif state.plain_ring:  # put_event(), written out for the plain case
        head = state.ring_head
        state.ring_head = head + 1
        EVENT(state.ring_buffer, 64 + (head & state.ring_mask) * 32, start, duration, node.where, state.iteration)
        state.head[RING_HEAD] = head + 1
    else:
        put_event(track, node, start, duration, 0)


def close_odd(track: Track, frame: Frame, at: int) -> None:
    """The rest of leaving a span that was resumed, measured or recursive; the frame is plain again."""
    if frame.resumed:
        put_event(track, frame.node, frame.resumed, at - frame.resumed, s.EVENT_SEGMENT)
    else:
        put_event(track, frame.node, frame.start, at - frame.start, 0)
    track.set_misplaced(-frame.misplaced)
    frame.own = 0
    frame.odd = frame.measured = frame.reentry = frame.misplaced = False
    frame.resumed = 0


def halve_histogram(node: Node, bucket: int) -> int:
    ints, first = node.hot[2], (node.at + s.N_HIST) * 2
    for i in range(first, first + s.HIST_BUCKETS):
        ints[i] >>= 1
    node.words[node.at + s.N_HIST_SHIFT] += 1
    return int(ints[bucket]) + 1


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
    if any(frame.zone is zone for frame in track.frames[: track.depth]):
        while track.frames[track.depth - 1].zone is not zone:
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
        track: Track | None = LOCAL.track
        if track is None or track.gen != state.gen_on:
            track = wake_for_span(track)
            if track is None:
                return self
        gen = track.gen
        track.gen = BUSY
        try:
            top = track.top
            depth = track.depth
            plain = depth < track.room
            try:
                node = top.children[self]
            except KeyError:
                plain = False
                with state.lock:
                    if gen != state.gen_on:  # another thread began another recording meanwhile: `top` is none of its nodes
                        track.inherited += 1
                        return self
                    node = find_child(track, top, self)
                self._look_at_caller()
            at = state.clock()
            top.words[top.self_at] = top.self_ns = top.self_ns + (at - track.last)
            track.last = at
            if not plain:
                measure_enter(track, push(track, self, node, at))
            else:  # push(), written out for the plain case
                frame = track.frames[depth]
                frame.node = node
                frame.below = top
                frame.zone = self
                frame.start = at
                if node.work != state.work:
                    node.work, node.self_at_work, node.count_at_work = state.work, node.self_ns, node.count
                words = track.words
                words[frame.node_at] = node.id
                words[frame.start_at] = at
                label = node.label
                label.open = count = label.open + 1
                if count == 1:
                    label.words[label.start_at] = label.union_start = at
                track.top = node
                track.depth = depth + 1
                words[track.state_at] = track.state = track.state + ENTERED
        except Exception:  # another thread stopped the recording under our feet
            state.lose("internal")
        finally:
            track.gen = gen
        if track.last >= state.edges_from and self.marks:
            tell_edge(track, 1)
        return self

    def __exit__(self, _type: object = None, _value: object = None, _traceback: object = None) -> None:
        track: Track | None = LOCAL.track
        if track is None or track.gen != state.gen_on:
            exit_off(track)
            return
        gen = track.gen
        track.gen = BUSY
        try:
            at = state.clock()
            depth = track.depth
            if depth and track.frames[depth - 1].zone is self:
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
                self.label.word(s.L_SITE, offset)
                self.label.word(s.L_SITE_BYTES, len(data) if offset else 0)
                self.label.words[self.label.union_at - s.L_UNION_NS + s.L_FLAGS] |= s.FLAG_HELD_ACROSS_YIELD


HOOKS_MODULE = f"{__package__}.hooks"


def outside(frame: FrameType) -> FrameType:
    """The script's frame: hooks are Python functions here, and stand between it and the recorder."""
    while frame.f_globals.get("__name__") == HOOKS_MODULE and frame.f_back is not None:
        frame = frame.f_back
    return frame


def wake_for_span(track: Track | None) -> Track | None:
    if track is not None and track.gen == BUSY:
        state.lose("dropped_reentrant")
        return None
    if not state.want:
        return None
    from .session import wake

    return wake()


def exit_off(track: Track | None) -> None:
    """An exit while nothing is recorded on this thread: nothing is made for it, only counted."""
    if not state.gen_on or (track is not None and track.gen == BUSY):
        return
    if track is not None and track.depth:
        track.depth -= 1
        state.lose("inherited")
    elif track is not None and track.inherited:
        track.inherited -= 1
        state.lose("inherited")
    else:
        state.lose("stray_exit")


ZONES = state.zones  # never replaced


def profile(name: Any, track_memory: bool = False) -> Any:
    """A named region, as a context manager or a decorator."""
    try:
        zone = ZONES[name]
    except (KeyError, TypeError):
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
