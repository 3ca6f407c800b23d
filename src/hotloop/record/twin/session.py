"""The life of a recording in Python: start, threads, pause, reset, end, forks; see `record/native/track.h`.

Invariant: for every track, its birth and the sum of its nodes' self times is the instant up to which it is accounted for.
"""

from __future__ import annotations

import builtins
import os
import sys
import time
from _thread import RLock, get_ident
from typing import Any

from ...store import schema as s
from ...store.writer import ShardWriter, drop
from . import sampler
from .environments import envs_end, envs_start
from .phases import settle_ended, settle_phases, settle_tails
from .rows import counters_start, end_iterations, next_window
from .spans import close_top
from .tree import NEVER, UNATTACHED, Track, add_node, label_of, path_of, state, touch

MAX_FREE_TRACKS = 64


def _native_id() -> int:
    import _thread

    return _thread.get_native_id() if hasattr(_thread, "get_native_id") else 0


def _thread_name() -> str:
    """The name Python knows this thread by, without making threading invent a dummy entry."""
    threading = sys.modules.get("threading")
    thread = getattr(threading, "_active", {}).get(get_ident())
    name = getattr(thread, "_name", None)
    return name if isinstance(name, str) else "MainThread" if threading is None else "thread"


def _name_key(name: str) -> str:
    return "".join(c for c in name if not c.isdigit())


class _Owner:
    """Lives in the thread's local storage; when the thread ends it gives the track up."""

    __slots__ = ("track",)

    def __init__(self, track: Track) -> None:
        self.track = track

    def __del__(self) -> None:
        try:
            track_ended(self.track)
        except (AttributeError, TypeError):
            pass  # the interpreter is going down and has cleared this module


def track_ended(track: Track) -> None:
    if track.gen == state.gen and state.shard is not None and state.pid == os.getpid():
        if state.gen_on:
            track_cut(track, "abandoned")
            with state.lock:
                settle_ended(track)
        track.words[track.at + s.T_ALIVE] = 2
        track.retired = True
        track.inherited = 0


def track_cut(track: Track, why: str) -> None:
    """The thread is gone, or recording stops: its open spans end here, and say so."""
    while track.frames:
        close_top(track, state.clock())  # anew each time: closing one may charge time to us
        state.lose(why)
        track.inherited += 1
    track.settle(state.clock())
    touch(track.top)


def begin_life(track: Track, at_ns: int) -> None:
    which = 1 - track.words[track.at + s.T_LIFE]
    where = track.at + s.T_LIVES + 2 * which
    track.words[where] = at_ns
    track.words[where + 1] = sum(node[s.N_SELF_NS] for node in track.nodes)
    track.words[track.at + s.T_LIFE] = which
    track.last = at_ns
    track.top = track.root
    track.words[track.at + s.T_BASE] = track.root.id


def track_attach(track: Track) -> bool:
    shard = state.shard
    assert shard is not None
    if track is state.local.track:  # else another thread's reset() carries it over
        track.ident, track.native_id = get_ident(), _native_id()
        track.name = _thread_name() if track.virtual < 0 else f"virtual-{track.virtual}"
    at_ns = state.clock()
    slot = shard.item(s.TRACKS)
    if slot is None:
        return False
    track.block, track.at, track.id = slot
    track.words = words = track.block.words
    track.nodes, track.idle = [], None
    root = add_node(track, 0, label_of(state.reserved["(root)"]), None)
    others = []
    for reserved in ("(profiler)", "(more labels)"):
        label = label_of(state.reserved[reserved])
        others.append(add_node(track, path_of(0, label.id), label, root))
    if root is None or others[0] is None or others[1] is None:
        return False
    track.root, track.profiler, track.overflow = root, others[0], others[1]
    state.tracks.append(track)
    data = track.name.encode("utf-8", "surrogatepass")[:255]
    offset, at = shard.string(data), track.at
    words[at + s.T_TID] = track.native_id
    words[at + s.T_NAME], words[at + s.T_NAME_BYTES] = offset, len(data) if offset else 0
    words[at + s.T_OCCUPANTS] = words[at + s.T_ALIVE] = 1
    track.inherited += len(track.frames)
    track.state = track.phase = track.gap_mark = 0
    track.frames, track.pending = [], []
    track.retired = False
    begin_life(track, at_ns)
    shard.publish(s.TRACKS)
    track.gen = state.gen
    return True


def track_for_thread() -> Track:
    """A track for a thread seen for the first time: that of an ended thread of the same kind, or a new one."""
    free = [track for track in state.tracks if track.retired]
    key = _name_key(_thread_name())
    track = next((t for t in free if _name_key(t.name) == key), free[0] if len(free) >= MAX_FREE_TRACKS else None)
    if track is None:
        track = Track()
    else:
        track.retired = False
        track.forget_calls()
        track.gap_mark, track.pending = track.root[s.N_SELF_NS], []
        begin_life(track, state.clock())
        track.ident, track.native_id = get_ident(), _native_id()
        track.words[track.at + s.T_TID] = track.native_id
        track.words[track.at + s.T_OCCUPANTS] += 1
        track.words[track.at + s.T_ALIVE] = 1
    state.local.owner = _Owner(track)
    return track


def _session_begin() -> bool:
    options = state.options
    shard_id = int.from_bytes(os.urandom(8), "little") | 1
    path = None
    if options["directory"] is not None:
        path = os.path.join(options["directory"], f"{os.getpid()}-{shard_id:016x}{s.SHARD_SUFFIX}")
    test = options["clock"] == s.CLOCK_TEST
    state.clock = _test_clock if test else time.perf_counter_ns  # CLOCK_MONOTONIC on Linux
    limit = state.option("budget")
    shard = _essentials(path, limit) or _essentials(None, limit)
    if shard is None:
        return False
    refused = shard.path is None and path is not None and not shard.disk_errno
    if refused:
        shard.lose("disk")
        state.head[s.H_DISK_ERRNO] = state.disk_errno
    state.disk_errno, state.pid = shard.disk_errno or state.disk_errno * refused, os.getpid()
    state.gen += 1
    state.tracks, state.touched = [], []
    envs_start()
    state.iteration = state.unwritten = state.row = state.log_left = state.ring_head = 0
    state.work, state.work_paused_ns = 1, 0
    state.in_loop = state.learned = state.episode_ended = state.manual_steps = False
    state.learns = state.expects
    state.hook_counts = set()
    state.log = None
    state.long_ns = options["long_ns"] or 1 << 62
    ring_events = state.option("ring_events")
    state.ring = shard.block(s.RING, -(-(ring_events * s.EVENT_WORDS * 8 + s.HEAD_WORDS * 8) // s.BLOCK_BYTES))
    state.ring_mask = ring_events - 1
    if state.ring is not None:
        state.ring.words[s.HEAD_CAPACITY] = ring_events
    units = state.option("iter_units")
    pair = [shard.block(s.ITERATIONS, units), shard.block(s.ITERATIONS, units)]
    state.rows_words = 0 if None in pair else units * s.BLOCK_WORDS - s.HEAD_WORDS
    state.log_room = state.option("log_events")
    h = state.head
    h[s.H_PID], h[s.H_PARENT_PID], h[s.H_SHARD_ID] = os.getpid(), os.getppid(), shard_id
    h[s.H_CLOCK] = s.CLOCK_TEST if test else s.CLOCK_PYTHON
    h[s.H_COST_INSIDE_PS], h[s.H_COST_OUTSIDE_PS], h[s.H_COST_ERROR_PS] = options["costs"]
    h[s.H_EPOCH], h[s.H_PARENT_SHARD] = options["epoch"], options["parent_shard"]
    h[s.H_PEAK_METHOD] = options["peak_method"]
    h[s.H_PROC_START] = _process_start_ticks()
    h[s.H_START_UNIX_NS] = time.time_ns()
    h[s.H_START_NS] = h[s.H_ITER_START_NS] = state.clock()
    h[s.H_VERSION] = s.VERSION
    counters_start()
    if state.name_pid == os.getpid():
        _write_name()
    next_window()
    state.gen_on = state.gen
    sampler.start()
    return True


def _essentials(path: str | None, limit: int) -> ShardWriter | None:
    """A shard with what no recording can do without: names, paths, and a label for what finds no room."""
    try:
        shard = ShardWriter(path, limit)
    except MemoryError:
        return None
    state.shard, state.head = shard, shard.header.words
    state.paths = {}
    overflow = state.reserved["(more labels)"]
    if label_of(overflow) is not None:
        for zone in state.reserved.values():
            label_of(zone)
        if path_of(0, label_of(state.reserved["(root)"]).id) is not None:
            state.paths.clear()  # path 0 is the root, not a label below it
            return shard
    state.disk_errno = shard.disk_errno
    drop(shard.path)
    state.shard = None
    _forget_labels()
    return None


def _process_start_ticks() -> int:
    try:
        with builtins.open("/proc/self/stat", "rb") as file:
            return int(file.read().rsplit(b")", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _test_clock() -> int:
    state.test_ns += state.test_tick
    return state.test_ns


def _forget_parent() -> None:
    """A forked child: the parent's shard is not ours."""
    assert state.shard is not None
    state.options = {**state.options, "is_child": True, "parent_shard": state.head[s.H_SHARD_ID]}
    state.shard.forget()
    state.shard = None
    state.tracks = []
    track = state.local.track
    if track is not None:  # the calls open at the fork are the parent's
        track.forget_calls()
    _forget_labels()


def _forget_labels() -> None:
    for zone in (*state.zones.values(), *state.reserved.values()):
        zone.label = None


def _after_fork_in_child() -> None:
    state.gen_on = 0
    state.lock = RLock()
    sampler.forget()
    track = state.local.track
    if track is not None:
        track.gen = UNATTACHED


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def wake() -> Track | None:
    """Everything that is not the plain case: off, armed, forked, a new thread, an old track. None: do not record."""
    if not state.want:
        return None
    if state.local.waking:  # a signal handler, or the garbage collector's callback, in the middle of the below
        state.lose("dropped_reentrant")
        return None
    state.local.waking = True
    try:
        return _wake()
    finally:
        state.local.waking = False


def _wake() -> Track | None:
    track: Track | None = state.local.track
    with state.lock:
        if not state.want:  # another thread ended the recording while we waited
            return None
        if not state.gen_on:
            if state.shard is not None and state.pid != os.getpid():
                _forget_parent()
            if not _session_begin():
                state.want = False
                return None
        if track is None:
            track = track_for_thread()
        state.local.track = track
        if track.gen != state.gen and not track_attach(track):
            state.lose("dropped_no_track")
            return None
    return track


def open(**options: Any) -> bool:
    close()
    _prune_zones()
    state.options = options
    state.name_pid = 0
    state.want = True
    state.expects = False
    if not options["armed"]:
        wake()
    return state.want


def _prune_zones() -> None:
    """Make room for names, so that a flood of them in one recording does not spoil the next; zones in use stay valid."""
    if len(state.zones) > s.MAX_ZONES // 2:
        state.zones.clear()


def close() -> None:
    state.want = False
    sampler.stop()
    if state.gen_on and state.pid == os.getpid():
        with state.lock:
            for track in state.live_tracks():
                track.settle(state.clock())
            settle_phases(ending=True)
    if state.shard is not None and state.pid == os.getpid():
        with state.lock:
            envs_end()
            end_iterations()
            if state.gen_on:
                settle_tails()
    pause()
    with state.lock:
        _leave_shard()


def _leave_shard() -> None:
    if state.shard is not None and state.pid != os.getpid():
        _forget_parent()
    if state.shard is None:
        return
    state.head[s.H_END_NS] = state.paused_at
    for track in state.tracks:
        track.nodes = []
    state.shard = None
    state.tracks, state.touched = [], []
    state.ring = state.log = None
    _forget_labels()


def pause() -> None:
    state.want = False
    if not state.gen_on:
        return
    with state.lock:
        for track in state.live_tracks():
            track_cut(track, "cut")
        at = state.clock()
        state.lifts += 1  # suspended spans are lost here, and counted
        for _ in range(state.head[s.H_LIFTED]):
            state.lose("dropped_suspended")
        state.head[s.H_LIFTED] = 0
        for zone in (*state.zones.values(), *state.reserved.values()):
            if zone.label is not None:
                zone.label.end(at)
        for index in range(s.H_SUSPENDED, s.H_SUSPENDED + 2 * s.SUSPENDED_SLOTS):
            state.head[index] = 0
        state.paused_at = at
        state.gen_on = 0


def resume() -> None:
    state.want = True
    if state.gen_on or state.shard is None or state.pid != os.getpid():
        return
    with state.lock:
        at = state.clock()
        for track in state.live_tracks():
            begin_life(track, at)
        state.head[s.H_PAUSED_NS] += at - state.paused_at
        state.head[s.H_ITER_START_NS] += at - state.paused_at  # the pause is not part of the iteration either
        state.gen_on = state.gen


def reset() -> None:
    """A new epoch: a fresh shard takes the old one's place, and the spans open now go on in it from here."""
    if not state.gen_on or state.shard is None or state.pid != os.getpid():
        return
    with state.lock:
        _begin_epoch()


def _begin_epoch() -> None:
    assert state.shard is not None
    carried = [(track, [frame.zone for frame in track.frames]) for track in state.live_tracks()]
    for track, zones in carried:
        track_cut(track, "cut")
        track.inherited -= len(zones)
    old, by_hand, learns = state.shard.path, state.manual_steps, state.learns
    close()
    state.options = {**state.options, "epoch": state.options["epoch"] + 1}
    state.want = _session_begin()
    if not state.want:
        return
    state.manual_steps, state.learns = by_hand, learns
    mine, edges_from = state.local.track, state.edges_from
    state.edges_from = NEVER  # nothing begins here that anybody waits for
    for track, zones in carried:
        if track_attach(track):
            state.local.track = track
            for zone in zones:
                zone.__enter__()
    state.local.track, state.edges_from = mine, edges_from
    drop(old)  # where that fails, a reader takes the latest epoch of a process anyway


def is_on() -> bool:
    return state.want


def attach() -> None:
    wake()


def shard() -> str | None:
    return state.shard.path if state.shard is not None and state.pid == os.getpid() else None


def disk_error() -> int:
    return state.head[s.H_DISK_ERRNO] if state.shard is not None else state.disk_errno


def snapshot() -> bytes:
    """The shard as bytes, every track accounted for up to now."""
    if state.shard is None or state.pid != os.getpid():
        return b""
    with state.lock:
        if state.gen_on:
            for track in state.live_tracks():
                track.settle(state.clock())
        return state.shard.snapshot()


def lose(why: int) -> None:
    if state.pid == os.getpid() and 0 <= why < len(s.LOSSES):
        state.lose(s.LOSSES[why])


def name_process(name: str) -> None:
    """Name this process: in its shard, or in the one it will make."""
    state.name, state.name_pid = name[:255], os.getpid()
    with state.lock:
        if state.shard is not None and state.pid == os.getpid():
            _write_name()


def _write_name() -> None:
    assert state.shard is not None
    data = state.name.encode("utf-8", "surrogatepass")
    state.head[s.H_NAME_BYTES] = len(data)
    state.head[s.H_NAME] = state.shard.string(data)


def set_callbacks(yield_check: Any, memory_span: Any, decorate: Any) -> None:
    state.yield_check, state.memory_span, state.decorate = yield_check, memory_span, decorate


def set_on_step(callback: Any) -> None:
    state.on_step = callback


def set_on_loop(callback: Any) -> None:
    state.on_loop = callback


def set_on_edge(callback: Any) -> None:
    """(where, entered) -> from when on to be told next, at every edge of a span that is marked."""
    state.edges_from = NEVER if callback is None else 0
    state.on_edge = callback


# ---- for tests: a clock and threads that are moved by hand ----

_virtual: dict[int, Track] = {}
_real: list[Track | None] = []


def set_time(ns: int, tick: int = 0) -> None:
    state.test_ns, state.test_tick = ns, tick


def use_track(which: int) -> None:
    if not _real:
        _real.append(state.local.track)
    if which < 0:
        state.local.track = _real.pop()
        return
    if which not in _virtual:
        _virtual[which] = Track()
        _virtual[which].virtual = which
    state.local.track = _virtual[which]
    wake()


def end_track() -> None:
    track = state.local.track
    if track is not None and track.gen == state.gen_on:
        track_cut(track, "abandoned")
        settle_ended(track)
        track.words[track.at + s.T_ALIVE] = 2
        track.inherited = 0
        begin_life(track, state.clock())
